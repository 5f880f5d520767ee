//! How many tokens has an answer used?
//!
//! Engines say so in the answer: at its end, in each event, or nowhere. The bytes are looked at as they pass, however they
//! are cut; nothing is kept but a name and a number, and nothing is allocated. A stream that says nothing is counted by its
//! events: engines send one for each token.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

use crate::queue::Used;

/// The longest name that is looked for.
const LONGEST: usize = 18;

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
    state: State,
    name: [u8; LONGEST],
    prompt: Option<u64>,
    /// The most that was told, and after how many events.
    output: Option<(u64, u64)>,
    /// Events so far, where it is a stream of them.
    events: Option<u64>,
    /// Whether the line so far is empty.
    at_line_start: bool,
    any: bool,
}

impl Usage {
    /// For an answer with these headers; `None` where there is nothing to be read.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        if headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let is = |prefix: &str| {
            let value = headers
                .get(CONTENT_TYPE)
                .map_or(&b""[..], |value| value.as_bytes());
            value
                .get(..prefix.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
        };
        let events = is("text/event-stream");
        (events || is("application/json") || is("application/x-ndjson")).then(|| Self::new(events))
    }

    fn new(events: bool) -> Self {
        Self {
            state: State::Outside,
            name: [0; LONGEST],
            prompt: None,
            output: None,
            events: events.then_some(0),
            at_line_start: true,
            any: false,
        }
    }

    /// These bytes pass.
    pub(super) fn saw(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if let Some(events) = &mut self.events {
                match byte {
                    b'\n' if self.at_line_start => {
                        *events += u64::from(self.any);
                        self.any = false;
                    }
                    b'\n' => self.at_line_start = true,
                    b'\r' => {}
                    _ => (self.at_line_start, self.any) = (false, true),
                }
            }
            self.step(*byte);
        }
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

    /// Streams tell the sum so far again and again, and what an answer quotes can only add to it.
    fn found(&mut self, which: Which, number: u64) {
        match which {
            Which::Prompt => self.prompt = self.prompt.max(Some(number)),
            Which::Output => {
                let most = self.output.map_or(number, |(most, _)| most.max(number));
                self.output = Some((most, self.events.unwrap_or(0)));
            }
        }
    }

    /// What is known when the answer has ended or was cut. `None`: nothing.
    pub(super) fn used(&self) -> Option<Used> {
        let output = match (self.output, self.events) {
            (Some((told, _)), None) => told,
            // A stream that was cut has told only what was used before. The event that tells it and the one that ends the
            // stream are no tokens.
            (Some((told, at)), Some(events)) => told.saturating_add(events.saturating_sub(at + 2)),
            (None, Some(events)) => events,
            // Where the prompt alone is told, the answer was none of tokens: embeddings, for example.
            (None, None) => self.prompt.map(|_| 0)?,
        };
        Some(Used::Tokens {
            prompt: self.prompt,
            output,
        })
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    /// Tokens of the prompt, if that is told, and of the answer.
    type Read = Option<(Option<u64>, u64)>;

    fn read(events: bool, pieces: &[&[u8]]) -> Read {
        let mut usage = Usage::new(events);
        pieces.iter().for_each(|piece| usage.saw(piece));
        usage.used().map(|used| match used {
            Used::Tokens { prompt, output } => (prompt, output),
            Used::Nothing => unreachable!(),
        })
    }

    /// (whether it is a stream, the answer, what it used)
    const ANSWERS: &[(bool, &str, Read)] = &[
        (
            false,
            r#"{"choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46,
            "completion_tokens_details":{"reasoning_tokens":9}}}"#,
            Some((Some(12), 34)),
        ),
        (
            true,
            "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\": \
             {\"prompt_tokens\" : 5,\"completion_tokens\":\n7 }}\n\ndata: [DONE]\n\n",
            Some((Some(5), 7)),
        ),
        (
            true,
            "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n\
             event: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n",
            Some((Some(25), 15)),
        ),
        (
            true,
            "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":3,\"input_tokens_details\":\
             {\"cached_tokens\":2},\"output_tokens\":4,\"total_tokens\":7}}}\r\n\r\n",
            Some((Some(3), 4)),
        ),
        (
            false,
            r#"{"content":"Hi","tokens_predicted":8,"tokens_evaluated":6}"#,
            Some((Some(6), 8)),
        ),
        // It told what it had used when it began, and was cut.
        (
            true,
            "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n\
             event: ping\ndata: {}\n\nevent: d\ndata: {\"a\"}\n\nevent: d\ndata: {\"b\"}\n\nevent: d\ndata: {\"c\"}\n\n",
            Some((Some(25), 4)),
        ),
        // Nothing is told: one token for each event.
        (
            true,
            "data: {\"a\"}\n\ndata: {\"b\"}\n\n: still here\n\n\n\ndata: [DO",
            Some((None, 3)),
        ),
        (
            false,
            r#"{"data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":9,"total_tokens":9}}"#,
            Some((Some(9), 0)),
        ),
        (false, r#"{"content":"no figures"}"#, None),
        // What a model writes is escaped, and is not believed.
        (
            false,
            r#"{"content":"\"output_tokens\":99, \"prompt_tokens\": 1"}"#,
            None,
        ),
        (
            false,
            r#"{"output_tokens":null,"output_tokens":"5","x":"output_tokens","y":1}"#,
            None,
        ),
        (
            false,
            r#"{"output_tokens":184467440737095516150}"#,
            Some((None, u64::MAX)),
        ),
    ];

    #[test]
    fn each_dialect_says_what_it_used() {
        for (events, answer, used) in ANSWERS {
            assert_eq!(read(*events, &[answer.as_bytes()]), *used, "{answer}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_watched() {
        let watched = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            Usage::of(&headers).map(|usage| usage.events)
        };
        assert_eq!(watched("application/json; charset=utf-8"), Some(None));
        assert_eq!(watched("Text/Event-Stream"), Some(Some(0)));
        assert_eq!(watched("audio/mpeg"), None);
        assert!(Usage::of(&HeaderMap::new()).is_none());
        let mut encoded = HeaderMap::new();
        encoded.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        encoded.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(Usage::of(&encoded).is_none());
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(which in 0..ANSWERS.len(), cuts in prop::collection::vec(0usize..400, 0..9)) {
            let (events, answer, used) = ANSWERS[which];
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(answer.len())).collect();
            cuts.extend([0, answer.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &answer.as_bytes()[cut[0]..cut[1]]).collect();
            prop_assert_eq!(read(events, &pieces), used);
        }

        #[test]
        fn any_bytes_will_do(bytes in prop::collection::vec(any::<u8>(), 0..300), events: bool) {
            read(events, &[&bytes]);
        }
    }
}
