//! Random bodies, in all the ways to write them, and what may happen to them.

use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::oracle::TEXT_KEYS;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -~]{0,12}",
        2 => "\\PC{0,6}",
        1 => any::<String>(),
        1 => Just(String::from("\u{0}\u{1f}\"\\/\u{7f}\u{2028}😀")),
    ]
}

/// Text of several blocks of the scanner's, all of one kind or mixed.
fn long_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ -!#-\\[\\]-~]{20,90}",
        2 => "[ -~]{1,40}[\n\t\r\"/]",
        1 => "[\\\\\"\n]{1,4}",
        1 => "[\u{80}-\u{7ff}]{1,20}",
        1 => "[\u{4e00}-\u{9fff}]{1,30}",
        1 => "[😀-😏]{1,6}",
        1 => (600usize..900).prop_map(|len| "abcdefghij".chars().cycle().take(len).collect::<String>()),
    ];
    prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
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
            "file_id",
            "id",
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
        "max_tokens" => number().boxed(),
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

pub(crate) fn body() -> impl Strategy<Value = Map<String, Value>> {
    let mut keys = TEXT_KEYS.to_vec();
    keys.extend([
        "model", "model", "model", "MODEL", "Model", "models", "stream", "n", "n_cmpl", "user",
    ]);
    keys.extend([
        "max_tokens",
        "store",
        "background",
        "previous_response_id",
        "conversation",
        "temperature",
        "a key that is longer than any we know",
    ]);
    let key = prop_oneof![9 => prop::sample::select(keys).prop_map(String::from), 1 => text()];
    prop::collection::vec(key.prop_flat_map(value_of), 0..9).prop_map(|fields| fields.into_iter().collect())
}

/// Token ids of several blocks, sometimes with something else among them.
fn long_ids() -> impl Strategy<Value = Value> {
    let ids = |below: u32| prop::collection::vec(0..below, 40..200);
    let ids = prop_oneof![ids(10), ids(1000), ids(130_000)];
    let other = (any::<prop::sample::Index>(), prop_oneof![number(), json()]);
    (ids, prop::option::weighted(0.3, other)).prop_map(|(ids, other)| {
        let mut ids: Vec<Value> = ids.into_iter().map(Value::from).collect();
        if let Some((at, value)) = other {
            let at = at.index(ids.len());
            ids[at] = value;
        }
        Value::from(ids)
    })
}

/// A body with texts of many words, and many token ids, under keys that count them, keep them, and do neither.
pub(crate) fn long_body() -> impl Strategy<Value = Map<String, Value>> {
    let keys = [
        "prompt",
        "input",
        "messages",
        "documents",
        "tools",
        "user",
        "model",
        "metadata",
    ];
    let message = (long_text(), long_text())
        .prop_map(|(text, image)| serde_json::json!({"role": "user", "content": [text, {"url": image}]}));
    let value = prop_oneof![
        2 => long_text().prop_map(Value::from),
        1 => prop::collection::vec(message, 1..3).prop_map(Value::from),
        1 => long_ids(),
        1 => prop::collection::vec(long_ids(), 1..3).prop_map(Value::from),
    ];
    prop::collection::btree_map(
        prop::sample::select(keys.to_vec()).prop_map(String::from),
        value,
        1..4,
    )
    .prop_map(|fields| fields.into_iter().collect())
}

/// Writes JSON in all the ways that mean the same: white space, escapes, exponents.
pub(crate) struct Writer {
    out: String,
    seed: u64,
    /// Half of the bodies have white space wherever it may stand.
    spacious: bool,
    comma: &'static str,
}

impl Writer {
    pub(crate) fn write(object: &Map<String, Value>, seed: u64) -> Vec<u8> {
        let mut writer = Self {
            out: String::new(),
            seed: seed | 1,
            spacious: true,
            comma: ",",
        };
        writer.spacious = writer.draw(2) == 0;
        writer.comma = [",", ", "][writer.draw(2) as usize];
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
        while self.spacious && self.draw(8) == 0 {
            let space = [' ', '\n', '\t', '\r'][self.draw(4) as usize];
            self.out.push(space);
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        // Some texts are written with few escapes that need not be.
        let seldom = [1, 100, 10_000][self.draw(3) as usize];
        for character in text.chars() {
            let short = match character {
                '"' | '\\' | '/' => Some(character),
                '\n' => Some('n'),
                '\u{8}' => Some('b'),
                _ => None,
            };
            let must = character < ' ' || matches!(character, '"' | '\\');
            match short {
                Some(short) if (must || self.draw(2 * seldom) == 0) && self.draw(3 * seldom) != 0 => {
                    self.out.extend(['\\', short]);
                }
                _ if must || self.draw(6 * seldom) == 0 => {
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
                    self.out.push_str(if index > 0 { self.comma } else { "" });
                    self.value(item);
                }
                self.space();
                self.out.push(']');
            }
            Value::Object(fields) => {
                self.out.push('{');
                for (index, (key, item)) in fields.iter().enumerate() {
                    self.out.push_str(if index > 0 { self.comma } else { "" });
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
pub(crate) enum Damage {
    Flip(prop::sample::Index, u8),
    Replace(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Truncate(prop::sample::Index),
}

pub(crate) fn damage() -> impl Strategy<Value = Damage> {
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

pub(crate) fn apply(body: &mut Vec<u8>, damage: &Damage) {
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
