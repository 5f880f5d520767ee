//! Is a form read as what wrote it meant it, and refused where two readers could differ?

use paddler_core::Moment;
use paddler_core::request::{
    AskedAdapter, AskedModel, RequestFacts, ScanErrorKind, ScanLimits, Scanned, Scanner, UnreadableRequest,
};
use proptest::prelude::*;

#[path = "../../fuzz/checks/form_body.rs"]
mod form_body;

use form_body::{CONTENT_TYPE, check, in_chunks};

/// A field: its name, the name of its file, and its value.
type Field = (String, Option<String>, Vec<u8>);

fn written(fields: &[Field]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, value) in fields {
        body.extend(format!("--b0-\r\nContent-Disposition: form-data; name=\"{name}\"").bytes());
        if let Some(file) = file {
            body.extend(format!("; filename=\"{file}\"\r\nContent-Type: audio/wav").bytes());
        }
        body.extend(b"\r\n\r\n");
        body.extend(value);
        body.extend(b"\r\n");
    }
    body.extend(b"--b0---\r\n");
    body
}

fn scan(body: &[u8]) -> Scanned {
    check(body);
    in_chunks(body, usize::MAX).unwrap()
}

fn one(headers: &str, value: &str) -> Vec<u8> {
    format!("--b0-\r\n{headers}\r\n\r\n{value}\r\n--b0---").into_bytes()
}

fn fault(body: &[u8]) -> String {
    check(body);
    in_chunks(body, usize::MAX).unwrap_err().to_string()
}

fn text(name: &str, value: &str) -> Field {
    (name.to_owned(), None, value.as_bytes().to_vec())
}

#[test]
fn the_model_is_found_before_and_behind_the_file() {
    let file = || {
        (
            "file".to_owned(),
            Some("a.wav".to_owned()),
            b"RIFF\r\n--b0\r\n-\r--b0+\n\r\n".repeat(1_000),
        )
    };
    for fields in [
        vec![text("model", "whisper-1"), file()],
        vec![file(), text("model", "whisper-1")],
    ] {
        let scanned = scan(&written(&fields));
        assert_eq!(scanned.model, AskedModel::Named("whisper-1".into()));
        assert_eq!((scanned.media, scanned.stream, scanned.n), (1, false, None));
    }
    let all = [
        text("model", ""),
        text("stream", "True"),
        text("n", "3"),
        text("prompt", "twelve bytes"),
        text("user", "u"),
        text("lora_path", "poet"),
    ];
    let scanned = scan(&written(&all));
    assert_eq!(
        (scanned.model, scanned.stream, scanned.n),
        (AskedModel::Any, true, Some(3))
    );
    assert_eq!(
        (scanned.prompt_bytes, scanned.prompts, scanned.user.as_deref()),
        (12, Some(1), Some("u"))
    );
    assert_eq!(scanned.adapter, AskedAdapter::Named("poet".into()));
    assert_eq!(scanned.model_spans.len(), 1, "it can be put in there");
    let long = "m".repeat(1_025);
    assert_eq!(
        scan(&written(&[text("model", &long)])).model,
        AskedModel::TooLong { bytes: 1_025 }
    );
    assert_eq!(scan(&written(&[])).model, AskedModel::Any);
}

#[test]
fn the_facts_of_a_form_are_those_of_a_request() {
    let fields = [
        text("model", "dall-e"),
        text("n", "4"),
        ("image".into(), Some("a.png".into()), vec![0; 9]),
    ];
    let body = written(&fields);
    let facts = RequestFacts::read("POST", "/v1/images/edits", &body, Moment::ZERO, 1).unwrap();
    assert_eq!(
        (facts.model.as_deref(), facts.weight, facts.tokens),
        (Some("dall-e"), 4, 512)
    );
    let cut = RequestFacts::read(
        "POST",
        "/v1/images/edits",
        &body[..body.len() - 5],
        Moment::ZERO,
        1,
    );
    assert!(matches!(cut, Err(UnreadableRequest::Body(_))), "{cut:?}");
}

#[test]
fn what_two_readers_could_read_in_two_ways_is_refused() {
    let model = "Content-Disposition: form-data; name=\"model\"";
    let two = |value: &str| [one(model, "a"), one(model, value)].concat();
    let twice = |value: &str| {
        let both = String::from_utf8(two(value)).unwrap();
        both.replace("--b0-----b0-", "--b0-").into_bytes()
    };
    assert_eq!(scan(&twice("a")).model_spans.len(), 2, "the same twice is one");
    for (body, expected) in [
        (
            twice("b"),
            "byte 113: `model` is given more than once (ignoring case), with different values: give it once",
        ),
        (
            one(&model.replace("model", "MODEL"), "a\u{7}"),
            "`model` holds a control character",
        ),
        (
            one(&format!("{model}; filename=\"m\""), "a"),
            "`model` is a file: send it as text",
        ),
        (
            one(&format!("{model}; name=\"user\""), "a"),
            "a part has two headers Content-Disposition, or two names",
        ),
        (
            one(
                &format!("{model}\r\nContent-Disposition: form-data; name=\"x\""),
                "a",
            ),
            "a part has two headers Content-Disposition, or two names",
        ),
        (
            one("Content-Disposition: form-data; name*=utf-8''model", "a"),
            "the name of a part is encoded (`name*`): write name=\"...\"",
        ),
        (
            one("Content-Disposition: form-data; name=\"mo\\del\"", "a"),
            "the name of a part holds a backslash, a `;` or a blank",
        ),
        (
            one("Content-Disposition: form-data; name=\"model;\"", "a"),
            "the name of a part holds a backslash, a `;` or a blank",
        ),
        (
            one("Content-Disposition: form-data; name=\"; model\"", "a"),
            "the name of a part holds a backslash, a `;` or a blank",
        ),
        (
            one("Content-Disposition: form-data; name=\"model \"", "a"),
            "the name of a part holds a backslash, a `;` or a blank",
        ),
        (
            one("Content-Disposition: form-data; name=\"\tmodel\"", "a"),
            "the name of a part holds a backslash, a `;` or a blank",
        ),
        (
            one("Content-Disposition: form-data; name=\"model\u{a0}\"", "a"),
            "the name of a part holds a backslash, a `;` or a blank",
        ),
        (
            one(
                "Content-Disposition: form-data; filename=\"a\\\"; name=\"model\"",
                "a",
            ),
            "a header has a `\\` before a quote: write %22 for a quote in a name",
        ),
        (
            one(
                "Content-Disposition: form-data; filename=\"; name=model\"; name=\"x\"",
                "a",
            ),
            "a header has `name=` within a quoted text: rename the file",
        ),
        (
            one("Content-Disposition: form-data;\r\n name=\"model\"", "a"),
            "a part has no name in a Content-Disposition",
        ),
        (
            one("Content-Disposition: attachment; name=\"model\"", "a"),
            "the Content-Disposition of a part is not form-data",
        ),
        (
            one("Content-Disposition : form-data; name=\"model\"", "a"),
            "the name of a part's header holds something else than letters, digits, `-` and `_`",
        ),
        (
            one("Content-Type: text/plain", "a"),
            "a part has no name in a Content-Disposition",
        ),
        (
            one(
                &format!("{model}\r\nContent-Type: text/plain; charset=utf-16"),
                "a",
            ),
            "the charset of a part is not UTF-8",
        ),
        (
            one(&format!("{model}\r\nContent-Transfer-Encoding: base64"), "YQ=="),
            "a part is encoded (Content-Transfer-Encoding): send its bytes as they are",
        ),
        (
            one(&model.replace("; ", ";\n"), "a"),
            "a header of a part is not text that ends with \\r\\n",
        ),
        (one(model, "--b0-"), "a part has no value, not even an empty one"),
        (one(model, "a--b0-"), "the value of a part holds the boundary"),
        (one(model, "a---b0-"), "the value of a part holds the boundary"),
        (
            one(model, "a\r\n--b--b0-"),
            "the value of a part holds the boundary",
        ),
        (
            one(model, "a\n--b0-\r\nX: y\r\n\r\n"),
            "the value of a part holds the boundary",
        ),
        (
            one(&format!("X: --b0-\r\n{model}"), "a"),
            "a header of a part holds the boundary",
        ),
        (
            one(model, "a\r\n--b0-x"),
            "behind a boundary comes the end of the line, or `--`",
        ),
        (
            [b"\r\n", &one(model, "a")[..]].concat(),
            "it does not begin with its boundary",
        ),
        (
            [&one(model, "a")[..], b"\r\n--b0-"].concat(),
            "something follows its last boundary",
        ),
        (
            one(model, "a")[..30].to_vec(),
            "it ends before its last boundary: was it cut short?",
        ),
        (Vec::new(), "it ends before its last boundary: was it cut short?"),
    ] {
        let fault = fault(&body);
        assert!(fault.ends_with(expected), "{fault}\n{}", body.escape_ascii());
    }
    let bad = [
        &b"--b0-\r\nContent-Disposition: form-data; name=model\r\n\r\n"[..],
        &[0xFF],
        b"\r\n--b0---",
    ]
    .concat();
    assert!(matches!(
        in_chunks(&bad, 3).unwrap_err().kind(),
        ScanErrorKind::InvalidUtf8
    ));
    let number = in_chunks(&written(&[text("n", "-1")]), 3).unwrap_err();
    assert!(matches!(number.kind(), ScanErrorKind::WrongType { key: "n", .. }));
    assert_eq!((number.line(), number.column()), (0, 0));
}

#[test]
fn a_form_is_bounded() {
    let many = vec![text("a", ""); 1_001];
    assert!(fault(&written(&many)).ends_with("it has more than 1,000 parts"));
    assert_eq!(scan(&written(&many[1..])).model, AskedModel::Any);
    let long = format!(
        "X-A: {}\r\nContent-Disposition: form-data; name=\"model\"",
        "a".repeat(9_000)
    );
    assert!(fault(&one(&long, "a")).ends_with("the headers of a part are longer than 8 KiB"));
}

#[test]
fn the_boundary_is_said_once_and_is_one() {
    let of = |content_type: &str| Scanner::of_form(content_type, ScanLimits::default()).err();
    for sound in [
        "boundary=x",
        "charset=utf-8; boundary=\"a:b\"",
        "Boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW",
    ] {
        assert_eq!(of(&format!("multipart/form-data; {sound}")), None, "{sound}");
    }
    let long = format!("boundary={}", "x".repeat(71));
    for wrong in [
        "",
        "boundary=",
        "boundary=a; boundary=b",
        "boundary=\"a b\"",
        "boundary=\"a\\\"b\"",
        "boundary = x",
        &long,
    ] {
        assert_eq!(
            of(&format!("multipart/form-data; {wrong}")),
            Some(ScanErrorKind::NoBoundary),
            "{wrong}"
        );
    }
    assert_eq!(of("multipart/form-data"), Some(ScanErrorKind::NoBoundary));
    let utf_16 = of("multipart/form-data; charset=utf-16; boundary=x");
    assert!(
        matches!(utf_16, Some(ScanErrorKind::MalformedForm { .. })),
        "{utf_16:?}"
    );
}

/// Values that hold what looks like a boundary, but is none.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        b"\r\n--b0",
        b"\r",
        b"\n",
        b"\r\n--",
        b"-",
        b"--b0",
        b"abc",
        b"\0\xff",
    ];
    let piece = prop::sample::select(pieces);
    prop::collection::vec(piece, 0..12)
        .prop_map(|pieces| pieces.concat())
        .prop_filter("no boundary", |value| {
            !["\r\n--b0-", "--b0-"].iter().any(|mark| {
                let framed = [b"\r\n", &value[..], b"\r\n--b0"].concat();
                framed[..framed.len() - 6]
                    .windows(mark.len())
                    .any(|window| window == mark.as_bytes())
            })
        })
}

fn edit() -> impl Strategy<Value = &'static [u8]> {
    let all: Vec<&[u8]> = vec![
        b"",
        b"\r\n",
        b"\"",
        b";",
        b"--b0-",
        b"name=\"model\"",
        b"\\",
        b" ",
    ];
    prop::sample::select(all)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn what_was_written_is_read_and_another_name_takes_its_place(
        before in prop::collection::vec(value(), 0..3),
        after in prop::collection::vec(value(), 0..3),
        model in "[a-z/:.-]{1,20}",
        other in "[a-z]{1,30}",
    ) {
        let file = |value: &Vec<u8>| ("file".to_owned(), Some("a".to_owned()), value.clone());
        let with = |model: &str| -> Vec<Field> {
            let before = before.iter().map(file);
            before.chain([text("Model", model)]).chain(after.iter().map(file)).collect()
        };
        let body = written(&with(&model));
        let scanned = scan(&body);
        prop_assert_eq!(scanned.model, AskedModel::Named(model.as_str().into()));
        prop_assert_eq!(scanned.media as usize, before.len() + after.len());
        let span = scanned.model_spans[0].start as usize..scanned.model_spans[0].end as usize;
        let spliced = [&body[..span.start], other.as_bytes(), &body[span.end..]].concat();
        prop_assert_eq!(spliced, written(&with(&other)));
    }

    #[test]
    fn a_form_that_is_damaged_is_read_as_others_read_it_or_not_at_all(
        value in value(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), edit(), 0..4usize), 1..4),
    ) {
        let mut body = written(&[text("model", "a"), ("file".into(), Some("f".into()), value), text("x", "y")]);
        for (at, with, removed) in edits {
            let at = at.index(body.len());
            let end = (at + removed).min(body.len());
            body.splice(at..end, with.iter().copied());
        }
        check(&body);
    }
}

#[test]
fn it_is_the_content_type_of_the_checks() {
    assert!(CONTENT_TYPE.ends_with("=b0-"));
}
