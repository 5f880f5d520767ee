//! How many tokens has an answer used?
//!
//! Engines say so in the answer: at its end, in each event, or nowhere. The bytes are looked at as they pass, however they
//! are cut; nothing is kept but a name and a number, and nothing is allocated. A stream that says nothing is counted by its
//! events or lines: engines send one for each token. So is one whose number cannot be true.

use http::HeaderMap;
use memchr::{memchr, memchr_iter};

use super::form::Form;
use crate::queue::Used;

/// The longest name that is looked for.
const LONGEST: usize = 18;

/// The most that one answer counts. An answer may repeat what its request says, and a number in that is anybody's.
const MOST: u64 = 1 << 24;

/// Events that frame an answer: such as say that it, a part of it or a tool's call begins or ends.
const FRAMING: u64 = 16;

/// What each name counts. In text that a model writes, quotes are escaped, so no name in it looks like one of these.
fn counts(name: &[u8]) -> Option<Which> {
    match name {
        // OpenAI's chat and completions; its responses, and Anthropic; llama.cpp; Ollama.
        b"prompt_tokens" | b"input_tokens" | b"tokens_evaluated" | b"prompt_eval_count" => {
            Some(Which::Prompt)
        }
        b"completion_tokens" | b"output_tokens" | b"tokens_predicted" | b"predicted_n" | b"eval_count" => {
            Some(Which::Output)
        }
        _ => None,
    }
}

/// Whether one of those goes so up to its first `_`.
fn may_count(word: &[u8]) -> bool {
    matches!(
        word,
        b"prompt" | b"input" | b"tokens" | b"completion" | b"output" | b"predicted" | b"eval"
    )
}

/// Where the quote stands before the next name that may count, or before what may become one in the next piece.
fn next_name(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    for at in memchr_iter(b'_', bytes) {
        match last_quoted(&bytes[from..at]) {
            Some((quote, word)) if may_count(word) => return Some(from + quote),
            _ => from = at + 1,
        }
    }
    last_quoted(&bytes[from..]).map(|(quote, _)| from + quote)
}

/// The letters that these bytes end with, if there is a quote before them, and where that is.
fn last_quoted(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let before = bytes.iter().rposition(|byte| !byte.is_ascii_lowercase())?;
    (bytes[before] == b'"').then(|| (before, &bytes[before + 1..]))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Prompt,
    Output,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Outside,
    /// In what may be a name, so many bytes of it read.
    Name(usize),
    /// After a name, before its colon.
    Colon(Which),
    /// Before or in its number.
    Number(Which, Option<u64>),
}

/// Watches an answer pass.
#[derive(Debug)]
pub(super) struct Usage {
    form: Form,
    state: State,
    name: [u8; LONGEST],
    prompt: Option<u64>,
    /// The most that was told, and after how many events.
    output: Option<(u64, u64)>,
    /// Events or lines so far.
    events: u64,
    /// Whether the line so far is empty.
    at_line_start: bool,
    /// Whether what has begun will count.
    any: bool,
}

impl Usage {
    /// For an answer with these headers; `None` where there is nothing to be read.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        Form::of(headers).map(Self::new)
    }

    fn new(form: Form) -> Self {
        Self {
            form,
            state: State::Outside,
            name: [0; LONGEST],
            prompt: None,
            output: None,
            events: 0,
            at_line_start: true,
            any: false,
        }
    }

    /// These bytes pass.
    pub(super) fn saw(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(end) = self.line_end(rest) {
            self.passes(&rest[..end]);
            self.ends_line();
            self.step(b'\n');
            rest = &rest[end + 1..];
        }
        self.passes(rest);
    }

    /// Where a line ends that counts.
    fn line_end(&self, bytes: &[u8]) -> Option<usize> {
        if self.form == Form::Whole {
            return None;
        }
        memchr(b'\n', bytes)
    }

    /// These bytes pass, none of which ends a line that counts. Each name has a `_`, so what has none before it is looked at no
    /// closer than that.
    fn passes(&mut self, bytes: &[u8]) {
        self.begins_line(bytes);
        let mut at = 0;
        while at < bytes.len() {
            if let State::Outside = self.state {
                match next_name(&bytes[at..]) {
                    Some(skipped) => at += skipped,
                    None => return,
                }
            }
            self.step(bytes[at]);
            at += 1;
        }
    }

    fn begins_line(&mut self, bytes: &[u8]) {
        if !self.at_line_start {
            return;
        }
        if let Some(first) = bytes.iter().find(|byte| **byte != b'\r') {
            // An event without data is none, so comments that keep a stream open are no tokens; of the names that a line may
            // begin with, `data` alone begins so.
            self.any |= self.form == Form::Lines || *first == b'd';
            self.at_line_start = false;
        }
    }

    fn ends_line(&mut self) {
        if self.form == Form::Lines || self.at_line_start {
            self.events += u64::from(self.any);
            self.any = false;
        }
        self.at_line_start = true;
    }

    fn step(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::Outside, b'"') => State::Name(0),
            (State::Outside, _) => return,
            (State::Name(length), b'"') => match counts(&self.name[..length]) {
                Some(which) => State::Colon(which),
                // It may also be where the next one begins.
                None => State::Name(0),
            },
            (State::Name(length), b'a'..=b'z' | b'_') if length < LONGEST => {
                self.name[length] = byte;
                State::Name(length + 1)
            }
            (State::Colon(which), b':') => State::Number(which, None),
            (State::Colon(_) | State::Number(_, None), b' ' | b'\t' | b'\r' | b'\n') => return,
            (State::Number(which, so_far), b'0'..=b'9') => {
                let number = so_far.unwrap_or(0).saturating_mul(10);
                State::Number(which, Some(number.saturating_add(u64::from(byte - b'0'))))
            }
            (State::Number(which, Some(number)), _) => {
                self.found(which, number);
                State::Outside
            }
            (_, b'"') => State::Name(0),
            _ => State::Outside,
        };
    }

    /// Streams tell the sum so far again and again, and what an answer quotes can only add to it: the events since the most
    /// was told go on counting.
    fn found(&mut self, which: Which, number: u64) {
        let number = number.min(MOST);
        match which {
            Which::Prompt => self.prompt = self.prompt.max(Some(number)),
            Which::Output => {
                let most = self.output.map_or(0, |(most, _)| most);
                if number >= most && !self.is_too_few(number) {
                    self.output = Some((number, self.events));
                }
            }
        }
    }

    /// Whether these are fewer tokens than can have come in so many events: half of them and more, but for a few, are tokens.
    fn is_too_few(&self, number: u64) -> bool {
        number.saturating_mul(2).saturating_add(FRAMING) < self.events
    }

    /// What is known when the answer has ended or was cut. `None`: nothing.
    pub(super) fn used(&self) -> Option<Used> {
        let output = match (self.output, self.form) {
            (Some((told, _)), Form::Whole) => told,
            // A stream that was cut has told only what was used before. The event that tells it and the one that ends the
            // stream are no tokens.
            (Some((told, at)), _) => told.saturating_add(self.events.saturating_sub(at + 2)),
            // Where the prompt alone is told, the answer was none of tokens: embeddings, for example.
            (None, Form::Whole) => self.prompt.map(|_| 0)?,
            (None, _) => self.events,
        };
        Some(Used::Tokens {
            prompt: self.prompt,
            output,
        })
    }
}

#[cfg(test)]
mod tests;
