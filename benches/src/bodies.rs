//! What do clients send?

use paddler_core::Moment;
use paddler_core::request::{RequestFacts, Route, ScanLimits, Scanner};

use crate::harness::Failure;

/// One kind of body, and a size that it comes in.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// What it is called, with its size in bytes.
    pub name: &'static str,
    /// How many bytes it has at most; the last item that fits ends it.
    pub bytes: usize,
    /// Where it is sent.
    path: &'static str,
    make: fn(usize) -> String,
}

const CHAT: &str = "/v1/chat/completions";

/// Separates the parts of a form.
const BOUNDARY: &str = "7d8f2a41-form-boundary";

impl Sample {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::SMALL,
        Self::new("chat/64KiB", 64 << 10, CHAT, chat),
        Self::new("model_last/64KiB", 64 << 10, CHAT, model_last),
        Self::new("tools/8KiB", 8 << 10, CHAT, tools),
        Self::new("ids/64KiB", 64 << 10, "/v1/completions", ids),
        Self::new("completion/8KiB", 8 << 10, "/v1/completions", completion),
        Self::new("responses/8KiB", 8 << 10, "/v1/responses", responses),
        Self::new("messages/8KiB", 8 << 10, "/v1/messages", messages),
        Self::new("embeddings/8KiB", 8 << 10, "/v1/embeddings", embeddings),
        Self::new("generate/8KiB", 8 << 10, "/v2/models/base/generate", generate),
        Self::new("form/1MiB", 1 << 20, "/v1/audio/transcriptions", form),
        Self::new("prose/1MiB", 1 << 20, CHAT, prose),
        Self::new("dashes/1MiB", 1 << 20, CHAT, dashes),
        Self::new("json/1MiB", 1 << 20, CHAT, json),
        Self::new("chinese/1MiB", 1 << 20, CHAT, chinese),
        Self::new("unicode/1MiB", 1 << 20, CHAT, unicode),
        Self::new("image/1MiB", 1 << 20, CHAT, image),
        Self::LARGEST,
    ];

    /// A small chat.
    pub const SMALL: Self = Self::new("chat/1KiB", 1 << 10, CHAT, chat);

    /// An image in a chat.
    pub const LARGEST: Self = Self::new("image/16MiB", 16 << 20, CHAT, image);

    const fn new(name: &'static str, bytes: usize, path: &'static str, make: fn(usize) -> String) -> Self {
        Self {
            name,
            bytes,
            path,
            make,
        }
    }

    /// A body of this kind; its model is `base`, where the body is to say it.
    #[must_use]
    pub fn body(&self) -> String {
        self.of_size(self.bytes)
    }

    /// The same of another size, in bytes.
    #[must_use]
    pub fn of_size(&self, bytes: usize) -> String {
        (self.make)(bytes)
    }

    fn is_form(&self) -> bool {
        self.path.starts_with("/v1/audio/")
    }

    /// Whether the body says what the model is. Triton's stands in the path.
    #[must_use]
    pub fn names_model(&self) -> bool {
        !self.path.starts_with("/v2/")
    }

    /// What reads it.
    ///
    /// # Errors
    /// Never: these forms say what separates their parts.
    pub fn scanner(&self) -> Result<Scanner, Failure> {
        if !self.is_form() {
            return Ok(Scanner::new(ScanLimits::default()));
        }
        let kind = format!("multipart/form-data; boundary={BOUNDARY}");
        Scanner::of_form(&kind, ScanLimits::default()).map_err(|kind| kind.to_string().into())
    }

    /// Where it is sent, as far as it matters.
    ///
    /// # Errors
    /// Never: these paths are sound.
    pub fn route(&self) -> Result<Route, Failure> {
        Ok(Route::of("POST", self.path)?)
    }

    /// What a body says, and what of it is kept.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn facts(&self, route: &Route, body: &[u8]) -> Result<RequestFacts, Failure> {
        let mut scanner = self.scanner()?;
        scanner.feed(body)?;
        let facts = RequestFacts::from_scan(route, &scanner.finish()?, Moment::ZERO, 1);
        facts.map_err(|error| error.to_string().into())
    }
}

/// What begins, what comes again as often as there is room, and what ends.
fn repeated(bytes: usize, start: &str, part: &str, end: &str) -> String {
    let times = bytes.saturating_sub(start.len() + end.len()) / part.len();
    [start, part.repeat(times).trim_end_matches(','), end].concat()
}

/// A short message with line ends and quotes.
const MESSAGE: &str = r#"{"role":"user","content":"Read \"src/lib.rs\" and say\nwhat it does, and what it does not do.\nBe brief: thirty words at most, and no lists. Then do the same for the next one.\n"},"#;

/// As agents send it: many short messages, with line ends and quotes.
fn chat(bytes: usize) -> String {
    let start = r#"{"model":"base","temperature":0.7,"stream":true,"messages":["#;
    repeated(bytes, start, MESSAGE, "]}")
}

/// Descriptions of functions: many short keys and strings.
fn tools(bytes: usize) -> String {
    let start = r#"{"model":"base","messages":[{"role":"user","content":"What is the weather in Paris?"}],"tool_choice":"auto","tools":["#;
    let tool = r#"{"type":"function","function":{"name":"get_weather","description":"Says what the weather is like","parameters":{"type":"object","properties":{"city":{"type":"string","description":"Which city"},"days":{"type":"integer","minimum":1,"maximum":14},"units":{"type":"string","enum":["metric","imperial"]}},"required":["city"],"additionalProperties":false},"strict":true}},"#;
    repeated(bytes, start, tool, "]}")
}

/// A prompt in token ids.
fn ids(bytes: usize) -> String {
    let start = r#"{"model":"base","prompt":["#;
    repeated(bytes, start, "12,90311,7,128000,2675,527,264,", "]}")
}

/// One message of this text, over and over.
fn message(bytes: usize, text: &str) -> String {
    let start = r#"{"model":"base","messages":[{"role":"user","content":""#;
    repeated(bytes, start, text, r#""}]}"#)
}

/// English text with an escape every 40 bytes.
const PROSE: &str =
    r#"He said: \"Look into the file, and tell me\", and so it was done with care, line by line\n"#;

/// One message of it.
fn prose(bytes: usize) -> String {
    message(bytes, PROSE)
}

/// English text of which little is not ASCII, and that in escapes: what the program `proxies` sends as `large`.
fn dashes(bytes: usize) -> String {
    let text = r#"Say in one word how it goes, and why \u2014 or \"nothing\".\n"#;
    message(bytes, text)
}

/// JSON within JSON, as the arguments of calls are written.
fn json(bytes: usize) -> String {
    let text =
        r#"{\"path\": \"src\\\\main.rs\", \"text\": \"fn main() {\\n\\tprintln!(\\\"Hello\\\");\\n}\\n\"}\n"#;
    message(bytes, text)
}

/// Text of three bytes a character.
fn chinese(bytes: usize) -> String {
    let text = r"请阅读这个文件，并告诉我它做什么。然后写一个总结，不超过三十个字。\n";
    message(bytes, text)
}

/// Text of which nothing is ASCII, in escapes, as Python's `json` writes it unless told otherwise.
fn unicode(bytes: usize) -> String {
    let text = r"\u8bf7\u9605\u8bfb\u8fd9\u4e2a\u6587\u4ef6\uff0c \ud83d\ude00 ";
    message(bytes, text)
}

/// One image, written out in base64.
fn image(bytes: usize) -> String {
    let start = r#"{"model":"base","messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,"#;
    let data = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ/+";
    repeated(bytes, start, data, r#""}}]}]}"#)
}

/// The model comes behind all messages, as it does from clients that sort keys.
fn model_last(bytes: usize) -> String {
    let start = r#"{"max_tokens":100,"messages":["#;
    repeated(bytes, start, MESSAGE, r#"],"model":"base"}"#)
}

/// One prompt, to be continued.
fn completion(bytes: usize) -> String {
    let start = r#"{"model":"base","max_tokens":100,"prompt":""#;
    repeated(bytes, start, PROSE, r#""}"#)
}

/// A conversation, with what the model is to be.
fn responses(bytes: usize) -> String {
    let start = r#"{"model":"base","store":false,"instructions":"Be brief.","input":["#;
    let item = r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"Read \"src/lib.rs\" and say\nwhat it does, and what it does not do."}]},"#;
    repeated(bytes, start, item, "]}")
}

/// The same to Anthropic's API.
fn messages(bytes: usize) -> String {
    let start = r#"{"model":"base","max_tokens":100,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],"messages":["#;
    let message = r#"{"role":"user","content":[{"type":"text","text":"Read \"src/lib.rs\" and say\nwhat it does, and what it does not do."}]},"#;
    repeated(bytes, start, message, "]}")
}

/// Many short texts.
fn embeddings(bytes: usize) -> String {
    let start = r#"{"model":"base","encoding_format":"base64","input":["#;
    repeated(
        bytes,
        start,
        r#""What is the weather like in Paris in the spring?","#,
        "]}",
    )
}

/// To Triton, which has the model in the path.
fn generate(bytes: usize) -> String {
    let start = r#"{"parameters":{"temperature":0.7,"max_tokens":100},"text_input":""#;
    repeated(bytes, start, PROSE, r#""}"#)
}

/// A sound, with the model before it. Bytes that a boundary might begin with come as often as in any file.
fn form(bytes: usize) -> String {
    let part = |name: &str| format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"");
    let start = format!(
        "{}\r\n\r\nbase\r\n{}; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\n",
        part("model"),
        part("file")
    );
    let mut state = 1_u32;
    let sound: String = (0..4_096)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from((state >> 25) as u8)
        })
        .collect();
    repeated(bytes, &start, &sound, &format!("\r\n--{BOUNDARY}--\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn each_is_of_its_size_and_says_its_model() {
        for sample in Sample::ALL {
            let (body, route) = (sample.body(), sample.route().unwrap());
            let facts = sample.facts(&route, body.as_bytes()).unwrap();
            let model = sample.names_model().then_some("base");
            assert_eq!(facts.model.as_deref(), model, "{}", sample.name);
            let bytes = body.len();
            assert!(
                bytes <= sample.bytes && bytes > sample.bytes * 3 / 4,
                "{}: {bytes}",
                sample.name
            );
        }
    }

    #[test]
    fn all_but_forms_are_json() {
        for sample in Sample::ALL.into_iter().filter(|sample| !sample.is_form()) {
            let read: Value = serde_json::from_str(&sample.body()).unwrap();
            assert_eq!(read["model"] == "base", sample.names_model(), "{}", sample.name);
        }
    }
}
