//! What must the scanner find? Said by `serde_json`.

use paddler_core::request::{ScanLimits, Scanned};
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

/// Whether it is JSON, by serde_json's grammar alone: no limit of depth or magnitude, lone surrogates allowed.
pub(crate) fn is_json_object(body: &[u8]) -> bool {
    let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let grammar = serde_json::from_slice::<IgnoredAny>(body).is_ok() && std::str::from_utf8(body).is_ok();
    grammar && body.trim_ascii_start().starts_with(b"{")
}

/// The value of a key; null counts as absent.
fn known<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

/// A string that is neither empty nor too long to be kept.
fn kept(value: &Value) -> Option<&str> {
    let longest = ScanLimits::default().max_captured;
    value.as_str().filter(|text| (1..=longest).contains(&text.len()))
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

/// Whether there is a `file_id` anywhere in it.
fn names_file(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(names_file),
        Value::Object(object) => object
            .iter()
            .any(|(key, item)| (key == "file_id" && !item.is_null()) || names_file(item)),
        _ => false,
    }
}

/// What the scan must find, or `None` when a value has a wrong type or `model` is ambiguous.
pub(crate) fn expected(object: &Map<String, Value>, body: &[u8], scanned: &Scanned) -> Option<()> {
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
    let name = models.first().and_then(|(_, value)| kept(value));
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
    let many = |key: &str| known(object, key).map(prompts);
    assert_eq!(scanned.prompts, many("prompt"));
    assert_eq!(scanned.inputs, many("input").or(many("content")));
    assert_eq!(
        scanned.documents,
        many("documents").or(many("texts")).or(many("text_2"))
    );
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
    let in_prompt = |key: &str| object.get(key).is_some_and(names_file);
    let builds = ["previous_response_id", "conversation", "input_file_id"];
    assert_eq!(
        scanned.builds_on_kept,
        builds.iter().any(|key| known(object, key).is_some())
            || ["messages", "prompt", "input", "content"]
                .into_iter()
                .any(in_prompt)
    );
    assert_eq!(scanned.user.as_deref(), object.get("user").and_then(kept));
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

pub(crate) const TEXT_KEYS: [&str; 16] = [
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
