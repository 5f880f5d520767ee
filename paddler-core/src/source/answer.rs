//! What does an answer say when it is not the one that was hoped for?

use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;

/// What stands in a report, behind the status, when the upstream wants a key that it was not given.
const WANTS_A_KEY: &str = "the upstream wants a key, and another one than it is sent, if it is sent any: name the file of \
                           its key in `api_key_file`, or `--upstream-api-key-file` (PADDLER_UPSTREAM_API_KEY_FILE)";

/// The longest text taken over from an answer, in characters.
const MAX_TEXT: usize = 120;

/// The longest body in which a message is looked for, in bytes: refusals are short.
const MAX_REFUSAL: usize = 64 << 10;

/// Says in a few words why an answer other than 200 gives no signal.
pub(crate) fn refusal(status: u16, body: &[u8]) -> String {
    match (status, message(body)) {
        (401 | 403, _) => format!("{status}: {WANTS_A_KEY}"),
        (_, Some(message)) => format!("{status}: {message}"),
        (_, None) => status.to_string(),
    }
}

/// Whether a refusal, in the words of [`refusal`], is that of a key.
#[cfg(feature = "proxy")]
pub(crate) fn is_about_a_key(refusal: &str) -> bool {
    refusal.ends_with(WANTS_A_KEY)
}

/// Whether this is llama.cpp saying that its model is not loaded yet, which it says on every path.
pub(super) fn is_loading(status: u16, body: &[u8]) -> bool {
    status == 503 && message(body).is_some_and(|message| message.eq_ignore_ascii_case("loading model"))
}

/// Whether this is llama.cpp in router mode saying that it has no load of its own to tell.
pub(super) fn is_router_mode(status: u16, body: &[u8]) -> bool {
    status == 400 && message(body).is_some_and(|message| message.starts_with("model name is missing"))
}

/// Reads a JSON body, or says in a few words why it cannot be read.
pub(super) fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        Category::Data => format!("unknown shape: {}", short(&error.to_string())),
        Category::Io | Category::Syntax | Category::Eof => "not JSON".to_owned(),
    })
}

/// A text from outside, cut to what a log line can bear.
pub(crate) fn short(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_TEXT)
        .collect()
}

/// The message of a refusal, in the shapes that the engines use: `{"error":{"message":..}}`, `{"error":".."}`,
/// `{"detail":".."}`, and `{"status":".."}` of the first generations of llama.cpp.
fn message(body: &[u8]) -> Option<String> {
    if body.len() > MAX_REFUSAL {
        return None;
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = body.get("error");
    let text = [
        error.and_then(|error| error.get("message")),
        error,
        body.get("detail"),
        body.get("status"),
    ]
    .into_iter()
    .flatten()
    .find_map(Value::as_str)?;
    Some(short(text))
}
