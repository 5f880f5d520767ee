//! Each odd thing that a body may hold.

use paddler_core::request::{AskedAdapter, AskedModel, ScanErrorKind, ScanLimits, Scanner};

use crate::{accepted, fault, scan, scan_in_all_ways};

#[test]
fn depth_is_limited_and_costs_no_stack() {
    let nested = |open: &str, close: &str, times: usize| {
        format!("{{\"a\":{}{}}}", open.repeat(times), close.repeat(times))
    };
    assert!(scan(nested("[", "]", 127)).is_ok());
    assert!(scan(nested("{\"b\":", "}", 127).replace(":}", ":0}")).is_ok());
    assert_eq!(
        fault(nested("[", "]", 128)),
        (ScanErrorKind::TooDeep { limit: 128 }, 5 + 127)
    );
    let bomb = format!("{{\"a\":{}", "[".repeat(200_000));
    let error = scan(&bomb).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1, column 133 (byte 132): arrays and objects nest deeper than 128: send a flatter body"
    );
    assert_eq!(
        scan("[".repeat(200_000)).unwrap_err().kind(),
        &ScanErrorKind::NotAnObject
    );

    let deep = ScanLimits::default().max_depth(100_001);
    assert!(Scanner::scan(nested("[", "]", 100_000).as_bytes(), deep).is_ok());
    let flat = ScanLimits::default().max_depth(0);
    assert!(
        Scanner::scan(b"{}", flat).is_ok(),
        "the body itself always may be opened"
    );
    assert!(Scanner::scan(br#"{"a":[]}"#, flat).is_err());
}

#[test]
fn brackets_must_match_at_any_depth() {
    for depth in [1, 62, 63, 64, 65, 126] {
        let body = format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(scan(&body).is_ok(), "{depth}");
        for at in 0..depth {
            let mut wrong = body.clone().into_bytes();
            let close = 5 + depth + at;
            wrong[close] = b'}';
            assert_eq!(scan(&wrong).unwrap_err().offset(), close as u64, "{depth}");
        }
    }
}

#[test]
fn errors_tell_the_place() {
    let error = scan("{\n  \"model\": \"m\",\n  \"n\": x\n}").unwrap_err();
    assert_eq!((error.line(), error.column(), error.offset()), (3, 8, 25));
    assert_eq!(
        error.to_string(),
        "line 3, column 8 (byte 25): expected a value, found `x`"
    );
    let error = scan(b"{\"a\": \"\xFF\"}").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1, column 8 (byte 7): a string is not valid UTF-8: send the body encoded as UTF-8"
    );
}

#[test]
fn bad_utf8_is_found_where_the_character_begins() {
    for (bytes, at) in [
        (&b"\xE2\x82"[..], 0),
        (b"ab\xE2\x28", 2),
        (b"\xC3", 0),
        (b"\xC0\x80", 0),
        (b"\xF4\x90\x80\x80", 0),
        ("é\u{10FFFF}".as_bytes(), u64::MAX),
        (b"\xC3\xA9\xA9", 2),
        (b"\xF0\x9F\x98", 0),
        (b"\xF0\x9F\\n", 0),
    ] {
        let body = [b"{\"a\":\"", bytes, b"\"}"].concat();
        if at == u64::MAX {
            assert!(scan_in_all_ways(&body).is_ok());
        } else {
            assert_eq!(
                fault(&body),
                (ScanErrorKind::InvalidUtf8, 6 + at),
                "{}",
                body.escape_ascii()
            );
        }
    }
}

#[test]
fn surrogates() {
    for (written, text) in [
        (r"\ud83d\ude00", "😀"),
        (r"\uD83D", "\u{FFFD}"),
        (r"\ude00", "\u{FFFD}"),
        (r"\ud83dx", "\u{FFFD}x"),
        (r"\ud83d\n", "\u{FFFD}\n"),
        (r"\ud83d\u0041", "\u{FFFD}A"),
        (r"\ud83d\ud83d\ude00", "\u{FFFD}😀"),
        (r"\ude00\ud83d", "\u{FFFD}\u{FFFD}"),
        (r"\ud83dé", "\u{FFFD}é"),
    ] {
        let scanned = scan_in_all_ways(format!("{{\"model\":\"{written}\"}}").as_bytes()).unwrap();
        assert_eq!(scanned.model.name().map(|name| &**name), Some(text), "{written}");
    }
}

#[test]
fn numbers() {
    for number in [
        "0",
        "-0",
        "10",
        "1.5",
        "1e5",
        "1E+5",
        "1e-05",
        "0.0e0",
        "-1.25E10",
        "1e999",
        "-123456789012345678901",
    ] {
        assert!(
            scan_in_all_ways(format!("{{\"x\":{number}}}").as_bytes()).is_ok(),
            "{number}"
        );
        assert!(
            scan_in_all_ways(format!("{{\"x\":[{number},{number} ]}}").as_bytes()).is_ok(),
            "{number}"
        );
    }
    for number in [
        "01", "-01", "1.", ".5", "+1", "-", "1e", "1e+", "--1", "1.e5", "00", "-x",
    ] {
        let (kind, _) = fault(format!("{{\"x\":{number}}}"));
        assert_eq!(kind, ScanErrorKind::InvalidNumber, "{number}");
    }
    for number in ["0x10", "1_000", "1f", "Infinity", "NaN"] {
        assert!(
            matches!(
                fault(format!("{{\"x\":{number}}}")),
                (ScanErrorKind::Unexpected { .. }, _)
            ),
            "{number}"
        );
    }
}

#[test]
fn byte_order_mark() {
    let marked = "\u{FEFF}{\"model\":\"m\"}";
    let scanned = scan_in_all_ways(marked.as_bytes()).unwrap();
    assert_eq!(
        &marked[scanned.model_spans[0].start as usize..scanned.model_spans[0].end as usize],
        "\"m\""
    );
    assert_eq!(fault("\u{FEFF}").0, ScanErrorKind::Empty);
    assert_eq!(fault(b"\xEF\xBB").0, ScanErrorKind::Truncated);
    assert_eq!(fault(b"\xEF\xBB{}").0, ScanErrorKind::NotAnObject);
    assert_eq!(fault(" \u{FEFF}{}").0, ScanErrorKind::NotAnObject);
    assert_eq!(fault("\u{FEFF}\u{FEFF}{}").0, ScanErrorKind::NotAnObject);
}

#[test]
fn the_model_is_one() {
    for body in [
        "{}",
        r#"{"model":null}"#,
        r#"{"model":""}"#,
        r#"{"models":"m"}"#,
        r#"{"a":{"model":"m"}}"#,
    ] {
        assert_eq!(accepted(body).model, AskedModel::Any, "{body}");
    }
    for body in [
        r#"{"model":"m"}"#,
        r#"{"MODEL":"m"}"#,
        r#"{"\u006dodel":"\u006d"}"#,
        r#"{"model":"m","Model":"m"}"#,
        r#"{"model":"m","x":{"model":"other"},"mod\u0065l":"\u006d"}"#,
    ] {
        let scanned = scan_in_all_ways(body.as_bytes()).unwrap();
        assert_eq!(scanned.model.name().map(|name| &**name), Some("m"), "{body}");
    }
    for (body, at) in [
        (r#"{"model":"a","model":"b"}"#, 21),
        (r#"{"model":"a","MODEL":null}"#, 21),
        (r#"{"model":"","Model":null}"#, 20),
        (r#"{"mOdEl":"a","mod\u0045l":"A"}"#, 26),
    ] {
        assert_eq!(fault(body), (ScanErrorKind::AmbiguousModel, at), "{body}");
    }
    for value in ["7", "true", "[]", "{}", "[\"m\"]"] {
        let expected = ScanErrorKind::WrongType {
            key: "model",
            expected: "a string",
        };
        assert_eq!(fault(format!("{{\"model\":{value}}}")), (expected, 9), "{value}");
    }
    let many = |times| format!("{{{}}}", vec![r#""model":"m""#; times].join(","));
    assert_eq!(scan(many(8)).unwrap().model_spans.len(), 8);
    assert_eq!(fault(many(9)).0, ScanErrorKind::RepeatedModel { limit: 8 });
}

#[test]
fn what_is_kept_is_bounded() {
    let limits = ScanLimits::default().max_captured(4);
    let scan = |body: &str| Scanner::scan(body.as_bytes(), limits);
    assert_eq!(
        scan(r#"{"model":"four"}"#).unwrap().model,
        AskedModel::Named("four".into())
    );
    assert_eq!(
        scan(r#"{"model":"\u0066our"}"#).unwrap().model,
        AskedModel::Named("four".into())
    );
    assert_eq!(
        scan(r#"{"model":"fives","user":"fives"}"#).unwrap().model,
        AskedModel::TooLong { bytes: 5 }
    );
    assert_eq!(scan(r#"{"user":"fives"}"#).unwrap().user, None);
    assert_eq!(scan(r#"{"user":"four"}"#).unwrap().user.as_deref(), Some("four"));
    assert_eq!(
        scan(r#"{"model":"four","Model":"fives"}"#).unwrap_err().kind(),
        &ScanErrorKind::AmbiguousModel
    );
    let long = format!("{{\"model\":\"{}\"}}", "x".repeat(1025));
    assert_eq!(accepted(&long).model, AskedModel::TooLong { bytes: 1025 });
}

#[test]
fn the_last_of_equal_keys_counts() {
    let scanned = accepted(
        r#"{"prompt":["a","b","c"],"prompt":"long text","stream":true,"stream":false,"n":5,"n":null,"user":"a","user":7}"#,
    );
    assert_eq!(
        (scanned.prompts, scanned.prompt_bytes, scanned.stream, scanned.n),
        (Some(1), 9, false, None)
    );
    assert_eq!(scanned.user, None);
}

#[test]
fn facts_with_a_wrong_type() {
    for (body, key) in [
        (r#"{"stream":"true"}"#, "stream"),
        (r#"{"stream":1}"#, "stream"),
        (r#"{"n":"3"}"#, "n"),
        (r#"{"n":-1}"#, "n"),
        (r#"{"n":1.0}"#, "n"),
        (r#"{"n":1e1}"#, "n"),
        (r#"{"n_cmpl":[2]}"#, "n_cmpl"),
    ] {
        assert!(
            matches!(fault(body).0, ScanErrorKind::WrongType { key: found, .. } if found == key),
            "{body}"
        );
    }
    // What only informs is unknown then; what forbids a replay holds.
    let scanned = accepted(r#"{"user":7,"store":"no","background":0,"previous_response_id":7}"#);
    assert_eq!((scanned.user, scanned.store), (None, Some(true)));
    assert!(scanned.background && scanned.previous_response);
    for big in ["99999999999999999999999", "4294967296"] {
        assert_eq!(accepted(&format!("{{\"n\":{big}}}")).n, Some(u32::MAX));
    }
}

#[test]
fn prompts_are_counted_as_engines_run_them() {
    for (value, prompts, ids) in [
        ("\"text\"", Some(1), 0),
        ("null", None, 0),
        ("[]", Some(0), 0),
        ("{}", Some(1), 0),
        (r#"["a","b"]"#, Some(2), 0),
        ("[1,2,3]", Some(1), 3),
        ("[[1,2],[3]]", Some(2), 3),
        (r#"["a",[1,2]]"#, Some(2), 2),
        (r#"[12,"a",34]"#, Some(1), 2),
        (r#"[{"a":[1]},{"b":2},"c"]"#, Some(3), 1),
        ("[1.5]", Some(1), 0),
    ] {
        for key in ["prompt", "input"] {
            let scanned = accepted(&format!("{{\"{key}\":{value}}}"));
            let found = if key == "prompt" {
                scanned.prompts
            } else {
                scanned.inputs
            };
            assert_eq!((found, scanned.token_ids), (prompts, ids), "{key}: {value}");
        }
    }
}

#[test]
fn token_ids_are_counted_however_they_are_written() {
    for between in [",", ", ", " ,", ",  ", ",\n"] {
        for count in [1, 2, 20, 40, 61] {
            let ids: Vec<String> = (0..count).map(|id| (id * id * id % 1009).to_string()).collect();
            let list = ids.join(between);
            for (body, prompts) in [
                (format!(r#"{{"prompt":[{list}]}}"#), 1),
                (format!(r#"{{"prompt":[[{list}],[{list}, -1]]}}"#), 2),
            ] {
                let scanned = accepted(&body);
                let expected = if prompts == 1 { count } else { 2 * count + 1 };
                assert_eq!(
                    (scanned.prompts, scanned.token_ids),
                    (Some(prompts), expected),
                    "{body}"
                );
            }
            // What is wrong among them is found where it is.
            for (wrong, before) in [("01", 1), ("1 2", 2), (",", 0), ("1.", 2), ("-", 1), ("1x", 1)] {
                let start = format!(r#"{{"input":[{list}{between}"#);
                let (_, offset) = fault(format!("{start}{wrong},{list}]}}"));
                assert_eq!(offset, (start.len() + before) as u64, "{start}{wrong}");
            }
        }
    }
}

#[test]
fn long_numbers_are_token_ids_like_the_short_ones() {
    for digits in [63, 64, 65, 200] {
        let long = "7".repeat(digits);
        for (list, ids) in [(format!("1,{long}"), 2), (format!("1,{long},2, {long},3"), 5)] {
            let scanned = accepted(&format!(r#"{{"prompt":[{list}]}}"#));
            assert_eq!((scanned.prompts, scanned.token_ids), (Some(1), ids), "{list}");
        }
    }
}

#[test]
fn numbers_follow_a_number_in_its_array_alone() {
    let list = (10..70).map(|id| id.to_string()).collect::<Vec<_>>().join(",");
    for (start, end) in [(r#"{"input":1,"#, "}"), (r#"{"input":[[1]"#, "]}")] {
        let (kind, offset) = fault(format!("{start}{list}{end}"));
        assert!(
            matches!(kind, ScanErrorKind::Unexpected { found: b'1', .. }),
            "{kind:?}"
        );
        assert_eq!(offset, start.len() as u64, "{start}");
    }
    // Only under some keys are they token ids.
    let scanned = accepted(&format!(r#"{{"documents":[{list}]}}"#));
    assert_eq!(
        (scanned.documents, scanned.prompts, scanned.token_ids),
        (Some(1), None, 0)
    );
}

#[test]
fn a_failed_scanner_stays_failed() {
    let mut scanner = Scanner::new(ScanLimits::default());
    scanner.feed(b"{\"a\"").unwrap();
    let first = scanner.feed(b" 1").unwrap_err();
    assert_eq!(scanner.feed(b"fine").unwrap_err(), first);
    assert_eq!(scanner.finish().unwrap_err(), first);
}

#[test]
fn an_adapter_that_is_asked_for_beside_the_model_is_seen() {
    let named = |name: &str| AskedAdapter::Named(name.into());
    for (body, adapter) in [
        (
            r#"{"model":"m","messages":[{"lora_path":"a"}],"x":{"lora":1}}"#,
            AskedAdapter::None,
        ),
        (
            r#"{"lora_path":null,"lora":[],"adapter":"","adapters":[null],"lora_id":false}"#,
            AskedAdapter::None,
        ),
        (r#"{"lora_path":"a"}"#, named("a")),
        (r#"{"LoRA_p\u0061th":"a","model":"m"}"#, named("a")),
        (r#"{"lora_path":["a",null,"a"],"adapter_id":"a"}"#, named("a")),
        (
            r#"{"parameters":{"top_k":1,"adapter_id":"a","x":"b"},"inputs":"Hi"}"#,
            named("a"),
        ),
        (
            r#"{"parameters":{"x":"b","y":["c"]},"y":"d"}"#,
            AskedAdapter::None,
        ),
        (
            r#"{"parameters":{"adapter_id":"a"},"parameters":["b",{"adapter_id":"c"}]}"#,
            AskedAdapter::Unclear,
        ),
        (
            r#"{"Para\u006deters":{"top_k":1,"PEFT_Id":"a","x":["b"]},"inputs":"Hi"}"#,
            named("a"),
        ),
        (
            r#"{"parameters":{"a":{"adapter-id":"a"},"b":"c"},"extra_body":{"parameters":{"lora":"a"}}}"#,
            named("a"),
        ),
        (r#"{"extraBody":{"lora_path":"a"},"x":"b"}"#, named("a")),
        (
            r#"{"loraPath":"a","lora-path":"a","_lora_nickname_of_more_than_24_letters":"a","lora_adapters":["a"]}"#,
            named("a"),
        ),
        (r#"{"lora_task_id":7}"#, AskedAdapter::Unclear),
        // None of these begins so.
        (
            r#"{"adaptive":1,"adapt":"a","explora":"b","pef":"c","lor":"d","extra_bod":{"lora":"a"},"exploration_parameters":{"lora":1}}"#,
            AskedAdapter::None,
        ),
        // The one that came last is not all that is asked for.
        (r#"{"lora_path":"a","lora_path":"b"}"#, AskedAdapter::Unclear),
        (r#"{"lora_path":"a","lora_path":null}"#, named("a")),
        (r#"{"lora_path":["a","b"]}"#, AskedAdapter::Unclear),
        (r#"{"lora_path":[["a"]]}"#, AskedAdapter::Unclear),
        (r#"{"lora":[{"id":0,"scale":0.5}]}"#, AskedAdapter::Unclear),
        (r#"{"lora_request":{"lora_name":"a"}}"#, AskedAdapter::Unclear),
        (r#"{"lora_id":0}"#, AskedAdapter::Unclear),
        (
            r#"{"parameters":{"adapter_id":["a","b"]}}"#,
            AskedAdapter::Unclear,
        ),
    ] {
        assert_eq!(accepted(body).adapter, adapter, "{body}");
    }
    let long = format!("{{\"lora_path\":\"{}\"}}", "a".repeat(1_025));
    assert_eq!(scan(long).unwrap().adapter, AskedAdapter::Unclear);
}

#[test]
fn what_a_request_refers_to_is_kept() {
    for (body, refers) in [
        (r#"{"previous_response_id":"resp_1"}"#, Some("resp_1")),
        (r#"{"conversation":"conv_1"}"#, Some("conv_1")),
        (r#"{"input_file_id":"file-\u0031"}"#, Some("file-1")),
        (
            r#"{"previous_response_id":null,"conversation":{"id":"c"}}"#,
            Some("c"),
        ),
        (
            r#"{"conversation":{"x":{"id":"d"},"list":["e"],"\u0069d":"c","of":"f"}}"#,
            Some("c"),
        ),
        (r#"{"conversation":{"id":["c"],"id":7}}"#, None),
        (
            r#"{"input":[{"file_id":"file-1"}],"previous_response_id":"resp_1"}"#,
            Some("resp_1"),
        ),
        (
            r#"{"previous_response_id":"resp_1","input":[{"file_id":"file-1"}]}"#,
            Some("resp_1"),
        ),
        (
            r#"{"messages":[{"content":[{"file":{"file_id":"file-1"}},"Hi"]}]}"#,
            Some("file-1"),
        ),
        (
            r#"{"messages":[{"file_id":["x"]},{"content":"file_id"}],"file_id":"x"}"#,
            None,
        ),
        (r#"{"previous_response_id":""}"#, None),
        (r#"{"input":[{"previous_response_id":"resp_1"}]}"#, None),
    ] {
        assert_eq!(accepted(body).refers.as_deref(), refers, "{body}");
    }
}
