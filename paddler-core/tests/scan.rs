//! Does the scanner agree with `serde_json`, however the body is written and cut?

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests may panic like the tests themselves"
)]

use paddler_core::request::{AskedModel, ScanError, ScanErrorKind, ScanLimits, Scanned, Scanner};
use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

fn scan(body: impl AsRef<[u8]>) -> Result<Scanned, ScanError> {
    Scanner::scan(body.as_ref(), ScanLimits::default())
}

fn scan_in_chunks<'a>(
    chunks: impl IntoIterator<Item = &'a [u8]>,
    limits: ScanLimits,
) -> Result<Scanned, ScanError> {
    let mut scanner = Scanner::new(limits);
    for chunk in chunks {
        scanner.feed(chunk)?;
    }
    scanner.finish()
}

/// Scans in all ways of cutting in two and byte by byte, and checks that they agree.
fn scan_in_all_ways(body: &[u8]) -> Result<Scanned, ScanError> {
    let limits = ScanLimits::default();
    let whole = Scanner::scan(body, limits);
    assert_eq!(
        whole,
        scan_in_chunks(body.chunks(1), limits),
        "byte by byte: {:?}",
        body.escape_ascii().to_string()
    );
    for cut in 0..=body.len() {
        let (before, after) = body.split_at(cut);
        assert_eq!(
            whole,
            scan_in_chunks([before, after], limits),
            "cut at {cut}: {}",
            body.escape_ascii()
        );
    }
    whole
}

/// What a valid body says.
fn accepted(body: &str) -> Scanned {
    scan_in_all_ways(body.as_bytes()).unwrap()
}

/// The kind of error, and the byte where it is.
fn fault(body: impl AsRef<[u8]>) -> (ScanErrorKind, u64) {
    let error = scan_in_all_ways(body.as_ref()).unwrap_err();
    (error.kind().clone(), error.offset())
}

// ---- An oracle made with serde_json ----

/// Whether it is JSON, by serde_json's grammar alone: no limit of depth or magnitude, lone surrogates allowed.
fn is_json_object(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let grammar = serde_json::from_slice::<IgnoredAny>(body).is_ok() && std::str::from_utf8(body).is_ok();
    grammar && body.trim_ascii_start().starts_with(b"{")
}

/// The value of a key; null counts as absent.
fn known<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64()
}

fn as_count(value: &Value) -> Option<u32> {
    value
        .as_u64()
        .map(|number| number.min(u64::from(u32::MAX)) as u32)
}

/// How many prompts a value stands for.
fn prompts(value: &Value) -> u32 {
    match value {
        Value::Array(items) if items.iter().any(is_integer) => 1,
        Value::Array(items) => items.len() as u32,
        _ => 1,
    }
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    media: u32,
    ids: u64,
}

impl Sum {
    fn add(&mut self, value: &Value, media: bool, with_media: bool) {
        match value {
            Value::String(_) if media => self.media += 1,
            Value::String(text) => self.bytes += text.len() as u64,
            Value::Array(items) => {
                let mut media = media;
                for item in items {
                    self.ids += u64::from(is_integer(item));
                    self.add(item, media, with_media);
                    media &= !(item.is_array() || item.is_object());
                }
            }
            Value::Object(object) => {
                for (key, item) in object {
                    let names = ["url", "image_url", "data", "file_data", "multimodal_data"];
                    self.add(item, with_media && names.contains(&key.as_str()), with_media);
                }
            }
            _ => {}
        }
    }
}

/// What the scan must find, or `None` when a value has a wrong type or `model` is ambiguous.
fn expected(object: &Map<String, Value>, body: &[u8], scanned: &Scanned) -> Option<()> {
    let models: Vec<_> = object
        .iter()
        .filter(|(key, _)| key.eq_ignore_ascii_case("model"))
        .collect();
    let consistent = models
        .iter()
        .all(|(_, value)| *value == models[0].1 && (value.is_string() || value.is_null()));
    let typed = |key: &str, fits: fn(&Value) -> bool| known(object, key).is_none_or(fits);
    if !consistent
        || !typed("stream", Value::is_boolean)
        || !typed("n", Value::is_u64)
        || !typed("n_cmpl", Value::is_u64)
    {
        return None;
    }
    let name = models
        .first()
        .and_then(|(_, value)| value.as_str())
        .filter(|name| !name.is_empty());
    assert_eq!(scanned.model.name().map(|name| &**name), name);
    assert_eq!(scanned.model_spans.len(), models.len());
    for span in &scanned.model_spans {
        let raw: Value = serde_json::from_slice(&body[span.start as usize..span.end as usize]).unwrap();
        assert_eq!(raw, *models[0].1);
    }
    let count = |key: &str| known(object, key).and_then(as_count);
    assert_eq!(
        scanned.stream,
        known(object, "stream").is_some_and(|value| value.as_bool() == Some(true))
    );
    assert_eq!(scanned.n, count("n").max(count("n_cmpl")));
    let limits = [
        "max_completion_tokens",
        "max_output_tokens",
        "max_tokens",
        "n_predict",
    ];
    assert_eq!(scanned.max_tokens, limits.into_iter().find_map(count));
    assert_eq!(scanned.slot, count("id_slot"));
    let many = |key: &str| known(object, key).map(prompts);
    assert_eq!(scanned.prompts, many("prompt"));
    assert_eq!(scanned.inputs, many("input").or(many("content")));
    assert_eq!(
        scanned.documents,
        many("documents").or(many("texts")).or(many("text_2"))
    );
    assert_eq!(scanned.messages, known(object, "messages").is_some());
    assert_eq!(
        scanned.store,
        known(object, "store").map(|value| *value != Value::Bool(false))
    );
    assert_eq!(
        scanned.background,
        known(object, "background").is_some_and(|value| *value != Value::Bool(false))
    );
    assert_eq!(
        scanned.previous_response,
        known(object, "previous_response_id").is_some()
    );
    let user = known(object, "user")
        .and_then(Value::as_str)
        .filter(|user| !user.is_empty());
    assert_eq!(scanned.user.as_deref(), user);
    let mut sum = Sum::default();
    for key in TEXT_KEYS {
        let mut own = Sum::default();
        own.add(
            object.get(key).unwrap_or(&Value::Null),
            false,
            ["messages", "prompt", "input", "content"].contains(&key),
        );
        sum.bytes += own.bytes;
        sum.media += own.media;
        sum.ids += if ["prompt", "input"].contains(&key) {
            own.ids
        } else {
            0
        };
    }
    assert_eq!(
        (scanned.prompt_bytes, scanned.media, scanned.token_ids),
        (sum.bytes, sum.media, sum.ids)
    );
    assert_eq!(scanned.body_bytes, body.len() as u64);
    Some(())
}

const TEXT_KEYS: [&str; 16] = [
    "messages",
    "prompt",
    "input",
    "content",
    "documents",
    "texts",
    "text_1",
    "text_2",
    "query",
    "system",
    "instructions",
    "tools",
    "functions",
    "input_prefix",
    "input_suffix",
    "input_extra",
];

// ---- Random bodies ----

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -~]{0,12}",
        2 => "\\PC{0,6}",
        1 => any::<String>(),
        1 => Just(String::from("\u{0}\u{1f}\"\\/\u{7f}\u{2028}😀")),
    ]
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        (-3i64..300).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
    ]
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        text().prop_map(Value::from),
    ];
    let key = prop_oneof![
        text(),
        prop::sample::select(vec![
            "model",
            "url",
            "data",
            "multimodal_data",
            "content",
            "text",
            "n"
        ])
        .prop_map(String::from),
    ];
    leaf.prop_recursive(4, 24, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// The value of a key: mostly of its own type, sometimes anything.
fn value_of(key: String) -> BoxedStrategy<(String, Value)> {
    let fitting = match key.as_str() {
        "model" | "MODEL" | "Model" => prop_oneof![
            Just(Value::Null),
            Just(Value::from("m")),
            text().prop_map(Value::from)
        ]
        .boxed(),
        "stream" | "store" | "background" => any::<bool>().prop_map(Value::from).boxed(),
        "user" | "previous_response_id" => text().prop_map(Value::from).boxed(),
        "n" | "n_cmpl" => (0u64..9).prop_map(Value::from).boxed(),
        "max_tokens" | "max_completion_tokens" | "max_output_tokens" | "n_predict" | "id_slot" => {
            number().boxed()
        }
        "prompt" | "input" | "content" => prop_oneof![
            text().prop_map(Value::from),
            prop::collection::vec(text(), 0..4).prop_map(Value::from),
            prop::collection::vec(0u32..99_999, 0..6).prop_map(Value::from),
            prop::collection::vec(prop::collection::vec(0u32..99, 0..4), 0..4).prop_map(Value::from),
            json(),
        ]
        .boxed(),
        _ => json().boxed(),
    };
    let value = prop_oneof![12 => fitting, 1 => json(), 1 => Just(Value::Null)];
    value.prop_map(move |value| (key.clone(), value)).boxed()
}

fn body() -> impl Strategy<Value = Map<String, Value>> {
    let mut keys = TEXT_KEYS.to_vec();
    keys.extend([
        "model", "model", "model", "MODEL", "Model", "models", "stream", "n", "n_cmpl", "user", "id_slot",
    ]);
    keys.extend([
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "n_predict",
    ]);
    keys.extend([
        "store",
        "background",
        "previous_response_id",
        "temperature",
        "a key that is longer than any we know",
    ]);
    let key = prop_oneof![9 => prop::sample::select(keys).prop_map(String::from), 1 => text()];
    prop::collection::vec(key.prop_flat_map(value_of), 0..9).prop_map(|fields| fields.into_iter().collect())
}

/// Writes JSON in all the ways that mean the same: white space, escapes, exponents.
struct Writer {
    out: String,
    seed: u64,
}

impl Writer {
    fn write(object: &Map<String, Value>, seed: u64) -> Vec<u8> {
        let mut writer = Self {
            out: String::new(),
            seed: seed | 1,
        };
        writer.value(&Value::Object(object.clone()));
        writer.out.into_bytes()
    }

    fn draw(&mut self, sides: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % sides
    }

    fn space(&mut self) {
        while self.draw(8) == 0 {
            let space = [' ', '\n', '\t', '\r'][self.draw(4) as usize];
            self.out.push(space);
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            let short = match character {
                '"' | '\\' | '/' => Some(character),
                '\n' => Some('n'),
                '\u{8}' => Some('b'),
                _ => None,
            };
            let must = character < ' ' || matches!(character, '"' | '\\');
            match short {
                Some(short) if (must || self.draw(2) == 0) && self.draw(3) != 0 => {
                    self.out.extend(['\\', short]);
                }
                _ if must || self.draw(6) == 0 => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        let digits = if self.draw(2) == 0 {
                            format!("{unit:04x}")
                        } else {
                            format!("{unit:04X}")
                        };
                        self.out.push_str("\\u");
                        self.out.push_str(&digits);
                    }
                }
                _ => self.out.push(character),
            }
        }
        self.out.push('"');
    }

    fn value(&mut self, value: &Value) {
        self.space();
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                self.out.push('[');
                for (index, item) in items.iter().enumerate() {
                    self.out.push_str(if index > 0 { "," } else { "" });
                    self.value(item);
                }
                self.space();
                self.out.push(']');
            }
            Value::Object(fields) => {
                self.out.push('{');
                for (index, (key, item)) in fields.iter().enumerate() {
                    self.out.push_str(if index > 0 { "," } else { "" });
                    self.space();
                    self.text(key);
                    self.space();
                    self.out.push(':');
                    self.value(item);
                }
                self.space();
                self.out.push('}');
            }
            other => self.out.push_str(&other.to_string()),
        }
        self.space();
    }
}

#[derive(Clone, Debug)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Replace(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Truncate(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    let tokens: Vec<&'static [u8]> = vec![
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\\u",
        b"\\ud83d",
        b"\\udc00",
        b"0",
        b"-",
        b".",
        b"e",
        b"+",
        b"1e999",
        b"true",
        b"null",
        b"nul",
        b"\x00",
        b"\n",
        b"\xC3",
        b"\xC3\xA9",
        b"\xE2\x82",
        b"\xF0\x9F\x98\x80",
        b"\xED\xA0\x80",
        b"\xEF\xBB\xBF",
        b"/",
        b" ",
    ];
    prop_oneof![
        (index(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (index(), any::<u8>()).prop_map(|(at, byte)| Damage::Replace(at, byte)),
        (index(), prop::sample::select(tokens)).prop_map(|(at, token)| Damage::Insert(at, token.to_vec())),
        (index(), 1usize..4).prop_map(|(at, count)| Damage::Remove(at, count)),
        index().prop_map(Damage::Truncate),
    ]
}

fn apply(body: &mut Vec<u8>, damage: &Damage) {
    let len = body.len();
    if len == 0 {
        return;
    }
    match damage {
        Damage::Flip(at, bit) => body[at.index(len)] ^= 1 << bit,
        Damage::Replace(at, byte) => body[at.index(len)] = *byte,
        Damage::Insert(at, bytes) => {
            let at = at.index(len);
            body.splice(at..at, bytes.iter().copied());
        }
        Damage::Remove(at, count) => {
            let at = at.index(len);
            body.drain(at..(at + count).min(len));
        }
        Damage::Truncate(at) => body.truncate(at.index(len)),
    }
}

/// Errors that are about the meaning of what was read so far; the rest may be JSON or not.
fn is_about_meaning(kind: &ScanErrorKind) -> bool {
    use ScanErrorKind::{AmbiguousModel, RepeatedModel, WrongType};
    matches!(kind, WrongType { .. } | AmbiguousModel | RepeatedModel { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn facts_are_those_of_serde_json(object in body(), seed: u64) {
        let body = Writer::write(&object, seed);
        // Writing and reading numbers may round them: compare with what serde_json reads.
        let object: Map<String, Value> = serde_json::from_slice(&body).unwrap();
        match scan_in_all_ways(&body) {
            Ok(scanned) => prop_assert!(expected(&object, &body, &scanned).is_some(), "accepted {object:?}"),
            Err(error) => {
                prop_assert!(is_about_meaning(error.kind()), "{error}");
                let nothing = scan("{}").unwrap();
                let verdict = std::panic::catch_unwind(|| expected(&object, &body, &nothing));
                prop_assert!(matches!(verdict, Ok(None)), "refused {object:?}: {error}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(3000) })]

    #[test]
    fn damaged_bodies_are_valid_where_serde_json_says_so(
        object in body(),
        seed: u64,
        damages in prop::collection::vec(damage(), 1..4),
    ) {
        let mut body = Writer::write(&object, seed);
        damages.iter().for_each(|damage| apply(&mut body, damage));
        let whole = scan(&body);
        match &whole {
            Ok(_) => prop_assert!(is_json_object(&body), "accepted {}", body.escape_ascii()),
            Err(error) if is_about_meaning(error.kind()) => {}
            Err(error) => prop_assert!(!is_json_object(&body), "refused {}: {error}", body.escape_ascii()),
        }
        prop_assert_eq!(whole, scan_in_chunks(body.chunks(1), ScanLimits::default()));
    }

    #[test]
    fn any_cut_gives_the_same(object in body(), seed: u64, sizes in prop::collection::vec(0usize..20, 1..8)) {
        let body = Writer::write(&object, seed);
        let mut rest = &body[..];
        let mut chunks = Vec::new();
        for size in sizes.iter().cycle() {
            let (chunk, after) = rest.split_at((*size).min(rest.len()));
            chunks.push(chunk);
            rest = after;
            if rest.is_empty() || chunks.len() > 10_000 {
                break;
            }
        }
        chunks.push(rest);
        prop_assert_eq!(scan(&body), scan_in_chunks(chunks, ScanLimits::default()));
    }
}

// ---- Each odd thing ----

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
        r#"{"prompt":["a","b","c"],"prompt":"long text","stream":true,"stream":false,"n":5,"n":null,"max_tokens":5,"max_tokens":-1,"user":"a","user":7}"#,
    );
    assert_eq!(
        (scanned.prompts, scanned.prompt_bytes, scanned.stream, scanned.n),
        (Some(1), 9, false, None)
    );
    assert_eq!((scanned.max_tokens, scanned.user), (None, None));
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
    let scanned =
        accepted(r#"{"max_tokens":"9","id_slot":-1,"store":"no","background":0,"previous_response_id":7}"#);
    assert_eq!(
        (scanned.max_tokens, scanned.slot, scanned.store),
        (None, None, Some(true))
    );
    assert!(scanned.background && scanned.previous_response);
    let big = accepted(r#"{"n":99999999999999999999999,"max_tokens":4294967296}"#);
    assert_eq!((big.n, big.max_tokens), (Some(u32::MAX), Some(u32::MAX)));
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
fn a_failed_scanner_stays_failed() {
    let mut scanner = Scanner::new(ScanLimits::default());
    scanner.feed(b"{\"a\"").unwrap();
    let first = scanner.feed(b" 1").unwrap_err();
    assert_eq!(scanner.feed(b"fine").unwrap_err(), first);
    assert_eq!(scanner.finish().unwrap_err(), first);
}
