use std::borrow::Cow;

use paddler_core::source::prometheus::{MAX_LINE, MAX_PAGE, Selector, samples};
use paddler_core::source::vllm::{VllmNames, read_metrics};
use paddler_core::status::Report;

use crate::sample::Recorded;

/// What is on a page, written out, and how many lines could not be read.
fn parse(page: impl AsRef<[u8]>) -> (Vec<String>, usize) {
    let mut on_page = samples(page.as_ref());
    let written = |sample: paddler_core::source::prometheus::Sample<'_>| {
        let time = sample
            .timestamp_ms
            .map(|time| format!(" @{time}"))
            .unwrap_or_default();
        format!("{}{:?} {:?}{time}", sample.name, sample.labels, sample.value)
    };
    let all = on_page.by_ref().map(written).collect();
    (all, on_page.malformed())
}

#[test]
fn recorded_pages_are_read_to_the_last_line() {
    for (name, count) in [
        ("llamacpp/metrics_busy", 15),
        ("vllm/metrics_idle", 447),
        ("vllm/metrics_busy_base", 541),
        ("vllm/metrics_busy_lora", 542),
        ("vllm/metrics_busy_kv", 432),
    ] {
        let (all, malformed) = parse(Recorded::read(name).body);
        assert_eq!((all.len(), malformed), (count, 0), "{name}");
    }
}

#[test]
fn lines_that_are_samples() {
    for (line, expected) in [
        ("a 1", r#"a{} 1.0"#),
        ("a{} 1", r#"a{} 1.0"#),
        ("a{}1", r#"a{} 1.0"#),
        ("  a\t1\t2  ", r#"a{} 1.0 @2"#),
        ("a 1 -5\r", r#"a{} 1.0 @-5"#),
        ("a:b_c9 NaN", r#"a:b_c9{} NaN"#),
        ("a +Inf", r#"a{} inf"#),
        ("a -Inf", r#"a{} -inf"#),
        ("a 1e999", r#"a{} inf"#),
        ("a 1.5e-3", r#"a{} 0.0015"#),
        (r#"a{b="c"} 1"#, r#"a{"b": "c"} 1.0"#),
        (r#"a { b = "c" , d="" , } 1 7"#, r#"a{"b": "c", "d": ""} 1.0 @7"#),
        (r#"a{b="x{y=\"z\"},#"} 1"#, r#"a{"b": "x{y=\"z\"},#"} 1.0"#),
        (r#"a{b="\\\"\n\t\\"} 1"#, r#"a{"b": "\\\"\n\\t\\"} 1.0"#),
        (r#"a{b="grün"} 1"#, r#"a{"b": "grün"} 1.0"#),
        (
            r#"a_bucket{le="1.0"} 17 # {trace_id="x} 9"} 9.8 1.5"#,
            r#"a_bucket{"le": "1.0"} 17.0"#,
        ),
        ("a 17 5 # {} 1", r#"a{} 17.0 @5"#),
    ] {
        assert_eq!(parse(line), (vec![expected.to_owned()], 0), "{line}");
    }
}

#[test]
fn lines_that_are_none() {
    for line in [
        "a",
        "a ",
        "1",
        "1a 1",
        "a{ 1",
        "a} 1",
        "a{b} 1",
        "a{b=} 1",
        "a{b=c} 1",
        "a{b=\"c} 1",
        "a{b=\"c\\\"} 1",
        "a{b=\"c\"d=\"e\"} 1",
        "a{,} 1",
        "a{b=\"c\",,} 1",
        "a{9=\"c\"} 1",
        "a{b:c=\"d\"} 1",
        "{a=\"b\"} 1",
        "a one",
        "a 1 2 3",
        "a 1 soon",
        "a 1 1.5",
        "a 1,5",
        "a-b 1",
        "ä 1",
        "a # 1",
        "a{}",
        "<html>",
        "{}",
        "\0",
    ] {
        assert_eq!(parse(line), (vec![], 1), "{line:?}");
    }
    assert_eq!(
        parse(b"a\xff 1\nb{c=\"\xff\"} 1\nd 1\n"),
        (vec!["d{} 1.0".to_owned()], 2)
    );
}

#[test]
fn comments_and_empty_lines_are_neither() {
    let page = format!(
        "# HELP a text {{\n#\n\n \t\r\n# {}\n  # a 1\na 1\n",
        "x".repeat(2 * MAX_LINE)
    );
    assert_eq!(parse(page), (vec!["a{} 1.0".to_owned()], 0));
    assert_eq!(parse(""), (vec![], 0));
}

#[test]
fn line_ends_do_not_matter() {
    let page = "# TYPE a gauge\r\na{b=\"c\"} 1 5\r\nd 2";
    let expected = ["a{\"b\": \"c\"} 1.0 @5".to_owned(), "d{} 2.0".to_owned()];
    assert_eq!(parse(page), (expected.to_vec(), 0));
    assert_eq!(parse(page.replace('\r', "") + "\n"), (expected.to_vec(), 0));
}

#[test]
fn an_openmetrics_page_tells_time_in_seconds() {
    let (all, malformed) = parse("a 1 1520879607.789\nb 2 1520879607\n# EOF\n");
    assert_eq!(all, ["a{} 1.0 @1520879607789", "b{} 2.0 @1520879607000"]);
    assert_eq!(malformed, 0);
    assert_eq!(
        parse("a 1 NaN\nb 1 1e300\n# EOF"),
        (vec![format!("b{{}} 1.0 @{}", i64::MAX)], 1)
    );
}

#[test]
fn a_line_may_be_64_kib_long() {
    let line = |length: usize| format!("a{{b=\"{}\"}} 1", "x".repeat(length - 9));
    assert_eq!(line(MAX_LINE).len(), MAX_LINE);
    assert_eq!(parse(line(MAX_LINE)).0.len(), 1);
    let (all, malformed) = parse(format!("{}\nc 1\n{}\n", line(MAX_LINE + 1), line(1 << 20)));
    assert_eq!((all, malformed), (vec!["c{} 1.0".to_owned()], 2));
}

#[test]
fn a_page_is_cut_after_its_last_whole_line() {
    let line = format!("metric{{text=\"{}\"}} 123456789\n", "x".repeat(1000));
    let whole = MAX_PAGE / line.len();
    let page = line.repeat(whole + 1);
    assert!(page.len() > MAX_PAGE && !MAX_PAGE.is_multiple_of(line.len()));
    let mut on_page = samples(page.as_bytes());
    let values: Vec<f64> = on_page.by_ref().map(|sample| sample.value).collect();
    assert_eq!(values, vec![123_456_789.0; whole]);
    assert_eq!(on_page.malformed(), 1);
    assert_eq!(samples(&vec![b'a'; MAX_PAGE + 1]).count(), 0);
}

#[test]
fn nothing_is_copied_from_a_large_page() {
    let page = Recorded::read("vllm/metrics_idle").body.repeat(200);
    assert!(page.len() > 10_000_000);
    let (mut all, mut of_an_engine) = (0, 0);
    let allocated = allocation_counter::measure(|| {
        for sample in samples(&page) {
            all += 1;
            of_an_engine += usize::from(sample.label("engine").is_some());
        }
    });
    assert_eq!(all, 200 * 447);
    assert!(of_an_engine > all / 2);
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn only_a_value_with_escapes_is_copied() {
    let mut on_page = samples(br#"a{plain="b",escaped="c\n"} 1"#);
    let sample = on_page.next().unwrap();
    assert!(matches!(sample.label("plain"), Some(Cow::Borrowed("b"))));
    assert!(matches!(sample.label("escaped"), Some(Cow::Owned(_))));
    assert_eq!(sample.label("none"), None);
    assert!(!sample.labels.is_empty());
    for line in ["a 1", "a{} 1", "a{ } 1"] {
        let bare = samples(line.as_bytes()).next().unwrap();
        assert!(bare.labels.is_empty(), "{line}");
    }
}

#[test]
fn selectors() {
    let labelled = Selector::new("m").label("a", "b").label("c", "d, \"e\"");
    for (text, expected) in [
        ("m", Selector::new("m")),
        (" m {} ", Selector::new("m")),
        ("m{a=b}", Selector::new("m").label("a", "b")),
        ("m{ a = b , }", Selector::new("m").label("a", "b")),
        ("m{a=}", Selector::new("m").label("a", "")),
        ("m{a=b=c}", Selector::new("m").label("a", "b=c")),
        (r#"m{a="b", c="d, \"e\""}"#, labelled.clone()),
    ] {
        assert_eq!(Selector::parse(text), Ok(expected), "{text}");
    }
    assert_eq!(labelled.to_string().parse(), Ok(labelled));
    for text in [
        "",
        "{a=b}",
        "m{a=b",
        "m{a}",
        "m{=b}",
        "m}",
        "m n",
        "m{a=\"b}",
        "m{a=\"b\"c}",
        "m{a=b}c",
        "m{a=b{}",
    ] {
        assert!(Selector::parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_newest_of_the_series_asked_for_counts() {
    let page =
        b"a{x=\"1\"} 1 1000\na{x=\"2\"} 2 2000\na{x=\"1\",y=\"3\"} 4 1000\nb 5 3000\nb 6 1000\nc 7\nc 8\nd 1\nd 2 -9\n";
    for (selector, value) in [
        ("a{x=1}", Some(1)),
        ("a", Some(2)),
        ("a{y=3}", Some(4)),
        ("b", Some(5)),
        ("c", Some(7)),
        ("d", Some(2)),
        ("a{x=3}", None),
        ("e", None),
        ("e{x=1}", None),
    ] {
        let names = VllmNames {
            waiting: vec![Selector::parse(selector).unwrap()],
            ..VllmNames::none()
        };
        let mut report = Report::new();
        read_metrics(200, page, &names, &mut report);
        assert_eq!(report.waiting, value, "{selector}");
        assert_eq!(report.degraded.is_empty(), value.is_some(), "{selector}");
    }
}
