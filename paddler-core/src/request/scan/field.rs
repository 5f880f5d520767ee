//! What do the keys and values of a body mean?

/// Top-level keys whose strings the engine reads as prompt. Those with an index of their own are counted as items too.
pub(super) const TEXT_KEYS: [&str; 17] = [
    "prompt",
    "input",
    "content",
    "documents",
    "texts",
    "text_2",
    "messages",
    "text_input",
    "text_1",
    "query",
    "system",
    "instructions",
    "tools",
    "functions",
    "input_prefix",
    "input_suffix",
    "input_extra",
];
pub(super) const PROMPT: usize = 0;
pub(super) const INPUT: usize = 1;
pub(super) const CONTENT: usize = 2;
pub(super) const DOCUMENTS: usize = 3;
pub(super) const TEXTS: usize = 4;
pub(super) const TEXT_2: usize = 5;
pub(super) const MESSAGES: usize = 6;
pub(super) const TEXT_INPUT: usize = 7;

/// Keys inside of a prompt whose strings are addresses or encoded files, not text.
pub(super) const MEDIA_KEYS: [&str; 5] = ["url", "image_url", "data", "file_data", "multimodal_data"];

/// A key inside of a prompt, or of a conversation, that says what its value is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Part {
    Other,
    Image,
    Sound,
    /// It names what an upstream keeps.
    Kept,
}

impl Part {
    pub(super) fn of(key: &[u8]) -> Self {
        match key {
            b"image_url" => Self::Image,
            b"input_audio" => Self::Sound,
            b"file_id" => Self::Kept,
            _ => Self::Other,
        }
    }
}

/// How keys begin by which engines take an adapter beside the model: `lora_path` and `lora_id` are SGLang's, `lora` is
/// llama.cpp's, `lora_request` and `lora_task_id` TensorRT-LLM's, `adapter_id` and `adapter_source` LoRAX's and TGI's, and
/// `adapters` mistral.rs's. No list of whole names would hold for the next release.
const ADAPTER_KEYS: [&str; 3] = ["lora", "adapter", "peft"];

/// How keys begin that hold such keys as stand at the top elsewhere: LoRAX and TGI have theirs under `parameters`, and what
/// stands under `extra_body` some gateways put at the top. `parameter`, as Go has a second sign for an `s`.
const HOLDING_KEYS: [&str; 2] = ["parameter", "extrabody"];

/// Whether a value of this key names an adapter.
pub(super) fn names_adapter(key: &[u8]) -> bool {
    ADAPTER_KEYS.iter().any(|with| begins(key, with))
}

/// Some engines ignore case, and some have `-` or the next letter's case for `_`.
fn begins(key: &[u8], with: &str) -> bool {
    let mut letters = key.iter().filter(|byte| !matches!(byte, b'-' | b'_'));
    with.bytes()
        .all(|one| letters.next().is_some_and(|byte| byte.eq_ignore_ascii_case(&one)))
}

/// What a top-level key is to us.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Field {
    Ignored,
    Model,
    Stream,
    N,
    NCmpl,
    Store,
    Background,
    PreviousResponse,
    /// It names what another request has made.
    Refers,
    /// The same, or it holds the `id` of that.
    Conversation,
    User,
    Adapter,
    /// What it holds may name an adapter.
    Holding,
    /// What is too long is to be cut.
    Truncates,
    Text(usize),
}

impl Field {
    pub(super) fn of(key: &[u8]) -> Self {
        match key {
            b"stream" => Self::Stream,
            b"n" => Self::N,
            b"n_cmpl" => Self::NCmpl,
            b"store" => Self::Store,
            b"background" => Self::Background,
            b"previous_response_id" => Self::PreviousResponse,
            b"conversation" => Self::Conversation,
            b"input_file_id" => Self::Refers,
            b"user" => Self::User,
            // No other character folds to one of these letters, so that ASCII is enough.
            _ if key.eq_ignore_ascii_case(b"model") => Self::Model,
            _ if key.starts_with(b"truncat") => Self::Truncates,
            _ if names_adapter(key) => Self::Adapter,
            _ if HOLDING_KEYS.iter().any(|with| begins(key, with)) => Self::Holding,
            _ => {
                let text = TEXT_KEYS.iter().position(|name| name.as_bytes() == key);
                text.map_or(Self::Ignored, Self::Text)
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Literal {
    True,
    False,
    Null,
}

impl Literal {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::False => "false",
            Self::Null => "null",
        }
    }
}

/// A number, as far as it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Number {
    pub(super) negative: bool,
    /// The digits before the point; of a value above 2^60 those that fit.
    pub(super) magnitude: u64,
    /// Whether there is neither a fraction nor an exponent.
    pub(super) integer: bool,
}

impl Number {
    /// Adds a digit of the part before the point.
    #[inline]
    pub(super) fn push(&mut self, digit: u8) {
        // What is above is above all that is counted.
        if self.magnitude < 1 << 60 {
            self.magnitude = self.magnitude * 10 + u64::from(digit - b'0');
        }
    }

    /// Takes the digits at the start of a number. Says how many there are.
    #[inline]
    pub(super) fn push_all(&mut self, bytes: &[u8]) -> usize {
        // In a copy, which stays in a register.
        let (mut number, mut len) = (*self, 0);
        while let Some(&digit @ b'0'..=b'9') = bytes.get(len) {
            number.push(digit);
            len += 1;
        }
        *self = number;
        len
    }

    pub(super) fn as_count(self) -> Option<u32> {
        let counts = self.integer && (!self.negative || self.magnitude == 0);
        counts.then(|| u32::try_from(self.magnitude).unwrap_or(u32::MAX))
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// A whole number, not negative; saturated.
    Count(u32),
    Negative,
    Fractional,
    String,
    Array,
    Object,
}

impl Value {
    /// A bool; null is false.
    pub(super) fn as_flag(self) -> Option<bool> {
        match self {
            Self::Null => Some(false),
            Self::Bool(flag) => Some(flag),
            _ => None,
        }
    }

    /// A count; null is none.
    pub(super) fn as_count(self) -> Option<Option<u32>> {
        match self {
            Self::Null => Some(None),
            Self::Count(count) => Some(Some(count)),
            _ => None,
        }
    }
}

/// What the value of one text key adds up to. Starts over when the key comes again: the last one counts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) present: bool,
    pub(super) bytes: u64,
    pub(super) token_ids: u64,
    pub(super) media: u32,
    pub(super) items: u32,
    pub(super) has_integers: bool,
}

impl Tally {
    /// How many prompts the value stands for: an array with a token id in it is one prompt as a whole.
    pub(super) fn prompts(&self) -> Option<u32> {
        self.present
            .then_some(if self.has_integers { 1 } else { self.items })
    }
}

/// How many bytes of a key are looked at. Those that matter as a whole are shorter.
pub(super) const KEPT: usize = 24;

/// A key that comes in pieces, as far as it is looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyBuffer {
    bytes: [u8; KEPT],
    len: usize,
}

impl KeyBuffer {
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn push(&mut self, text: &[u8]) {
        let room = &mut self.bytes[self.len..];
        let fits = room.len().min(text.len());
        room[..fits].copy_from_slice(&text[..fits]);
        self.len += fits;
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
