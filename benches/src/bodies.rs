//! What do clients send?

/// One kind of body, and a size that it comes in.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// What it is called, with its size in bytes.
    pub name: &'static str,
    /// How many bytes it has at most; the last item that fits ends it.
    pub bytes: usize,
    make: fn(usize) -> String,
}

impl Sample {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::new("chat/1KiB", 1 << 10, chat),
        Self::new("chat/64KiB", 64 << 10, chat),
        Self::new("tools/8KiB", 8 << 10, tools),
        Self::new("ids/64KiB", 64 << 10, ids),
        Self::new("prose/1MiB", 1 << 20, prose),
        Self::new("chinese/1MiB", 1 << 20, chinese),
        Self::new("unicode/1MiB", 1 << 20, unicode),
        Self::new("image/1MiB", 1 << 20, image),
        Self::new("image/16MiB", 16 << 20, image),
    ];

    const fn new(name: &'static str, bytes: usize, make: fn(usize) -> String) -> Self {
        Self { name, bytes, make }
    }

    /// A body of this kind; its model is `base`.
    #[must_use]
    pub fn body(&self) -> String {
        (self.make)(self.bytes)
    }
}

/// What begins, what comes again as often as there is room, and what ends.
fn repeated(bytes: usize, start: &str, part: &str, end: &str) -> String {
    let times = bytes.saturating_sub(start.len() + end.len()) / part.len();
    [start, part.repeat(times).trim_end_matches(','), end].concat()
}

/// As agents send it: many short messages, with line ends and quotes.
fn chat(bytes: usize) -> String {
    let start = r#"{"model":"base","temperature":0.7,"stream":true,"messages":["#;
    let message = r#"{"role":"user","content":"Read \"src/lib.rs\" and say\nwhat it does, and what it does not do.\nBe brief: thirty words at most, and no lists. Then do the same for the next one.\n"},"#;
    repeated(bytes, start, message, "]}")
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
fn prose(bytes: usize) -> String {
    let text =
        r#"He said: \"Look into the file, and tell me\", and so it was done with care, line by line\n"#;
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn each_is_json_of_its_size() {
        for sample in Sample::ALL {
            let body = sample.body();
            let read: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(read["model"], "base", "{}", sample.name);
            let bytes = body.len();
            assert!(
                bytes <= sample.bytes && bytes > sample.bytes * 3 / 4,
                "{}: {bytes}",
                sample.name
            );
        }
    }
}
