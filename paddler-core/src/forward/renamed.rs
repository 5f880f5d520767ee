//! How does an answer name the model that was asked for, and not the one that is meant?
//!
//! By replacing that one string as the answer passes: no event is held back, and what has none passes as it came. It stands
//! under `model` (`model_name` in Triton's own API) at the top of an object, or of what that holds under `response` (Responses
//! API) or `message` (Anthropic).

use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body as HttpBody, Frame};
use memchr::memchr2;
use memchr::memmem::Finder;

use super::body::{Body, BoxError};
use super::form::Form;

/// The longest key that matters.
const LONGEST: usize = 10;

/// Where in a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So many letters of `data:` were seen.
    Begun(usize),
    Data,
    /// It holds no object.
    Other,
}

/// What the object is in the middle of. In texts: whether a backslash was the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    Text(bool),
    /// A key: so many bytes, and whether it is one with escapes or too long.
    Key(usize, bool),
    /// Behind the key of the name, and whether the colon was seen.
    Named(bool),
    /// The name that is left out.
    Name(bool),
}

const DATA: &[u8] = b"data:";

/// Puts another name in as an answer passes.
#[derive(Debug)]
struct Renamer {
    form: Form,
    line: Line,
    state: State,
    depth: u32,
    expects_key: bool,
    /// The key at the top that was last begins what may hold the name, too.
    holds: bool,
    key: [u8; LONGEST],
    /// What the name stands under.
    under: Finder<'static>,
    /// The name, in quotes.
    name: Bytes,
}

impl Renamer {
    fn new(form: Form, (under, name): (&'static str, &str)) -> Self {
        Self {
            form,
            line: if form == Form::Events {
                Line::Begun(0)
            } else {
                Line::Data
            },
            state: State::Between,
            depth: 0,
            expects_key: false,
            holds: false,
            key: [0; LONGEST],
            under: Finder::new(under),
            name: serde_json::Value::from(name).to_string().into(),
        }
    }

    /// What these bytes become.
    fn pass(&mut self, bytes: Bytes) -> Bytes {
        let (mut out, mut from) = (BytesMut::new(), 0);
        let mut whole = !matches!(self.state, State::Name(_));
        let (mut at, mut nameless) = (0, self.nameless(&bytes, 0));
        while at < bytes.len() {
            if at > nameless.end {
                nameless = self.nameless(&bytes, at);
            }
            at += self.idle(&bytes[at..nameless.end], at >= nameless.start);
            let Some(byte) = bytes.get(at) else { break };
            let was_name = matches!(self.state, State::Name(_));
            self.step(*byte);
            let is_name = matches!(self.state, State::Name(_));
            if is_name && !was_name {
                out.reserve(bytes.len() - from + self.name.len());
                out.extend_from_slice(&bytes[from..at]);
                out.extend_from_slice(&self.name);
                whole = false;
            }
            if was_name && !is_name {
                // A line that ends within the name is no object.
                from = at + usize::from(*byte == b'"');
            }
            at += 1;
        }
        if whole {
            return bytes;
        }
        if !matches!(self.state, State::Name(_)) {
            out.extend_from_slice(&bytes[from..]);
        }
        out.freeze()
    }

    /// What the line that goes on here has behind all that may be the name's key, up to its end. Where it ends with another
    /// piece, nobody knows.
    fn nameless(&self, bytes: &[u8], at: usize) -> Range<usize> {
        let end = match self.form {
            Form::Whole => None,
            Form::Lines | Form::Events => memchr2(b'\n', b'\r', &bytes[at..]),
        };
        let Some(end) = end.map(|end| at + end) else {
            return bytes.len()..bytes.len();
        };
        let last = self.under.find_iter(&bytes[at..end]).last();
        at + last.map_or(0, |last| last + self.under.needle().len())..end
    }

    /// How many of these bytes, with which a line goes on, change nothing. `nameless`: no name comes before it ends.
    fn idle(&self, line: &[u8], nameless: bool) -> usize {
        match (self.line, self.state) {
            (Line::Other, _) => line.len(),
            // What the line's end finds, it forgets.
            (_, State::Between | State::Text(_)) if nameless => line.len(),
            (Line::Data, State::Text(false)) => memchr2(b'"', b'\\', line).unwrap_or(line.len()),
            (Line::Data, State::Between) => {
                let keys = self.expects_key || self.may_name();
                let mark =
                    |byte: &u8| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']') || (keys && *byte == b',');
                line.iter().position(mark).unwrap_or(line.len())
            }
            _ => 0,
        }
    }

    fn step(&mut self, byte: u8) {
        if self.form != Form::Whole && matches!(byte, b'\n' | b'\r') {
            // No object goes beyond its line.
            let line = if self.form == Form::Events {
                Line::Begun(0)
            } else {
                Line::Data
            };
            (self.line, self.state, self.depth, self.expects_key, self.holds) =
                (line, State::Between, 0, false, false);
            return;
        }
        self.line = match self.line {
            Line::Data => return self.object(byte),
            Line::Begun(seen) if DATA[seen] == byte && seen + 1 == DATA.len() => Line::Data,
            Line::Begun(seen) if DATA[seen] == byte => Line::Begun(seen + 1),
            _ => Line::Other,
        };
    }

    fn object(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::Text(false) | State::Name(false), b'"') => State::Between,
            (State::Text(escaped), _) => State::Text(byte == b'\\' && !escaped),
            (State::Name(escaped), _) => State::Name(byte == b'\\' && !escaped),
            (State::Key(length, odd), b'"') => self.key_ends(length, odd),
            // With an escape it is none that matters, and goes on as any text.
            (State::Key(..), b'\\') => State::Text(true),
            (State::Key(length, _), _) if length < LONGEST => {
                self.key[length] = byte;
                State::Key(length + 1, false)
            }
            (State::Key(length, _), _) => State::Key(length, true),
            (State::Named(false), b':') => State::Named(true),
            (State::Named(_), b' ' | b'\t' | b'\n' | b'\r') => return,
            (State::Named(true), b'"') => State::Name(false),
            (State::Named(_) | State::Between, _) => self.between(byte),
        };
    }

    /// Whether the name may stand where it is.
    fn may_name(&self) -> bool {
        self.depth == 1 || (self.depth == 2 && self.holds)
    }

    fn between(&mut self, byte: u8) -> State {
        match byte {
            b'{' | b'[' => {
                self.depth = self.depth.saturating_add(1);
                self.expects_key = byte == b'{' && self.may_name();
            }
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            b',' => self.expects_key = self.may_name(),
            b'"' if std::mem::take(&mut self.expects_key) => return State::Key(0, false),
            b'"' => return State::Text(false),
            _ => {}
        }
        State::Between
    }

    fn key_ends(&mut self, length: usize, odd: bool) -> State {
        let key = &self.key[..length];
        if self.depth == 1 {
            self.holds = !odd && (key == b"response" || key == b"message");
        }
        if !odd && key == self.under.needle() {
            State::Named(false)
        } else {
            State::Between
        }
    }
}

/// Makes an answer with these headers name this model under this key. What is encoded or of another kind stays as it is.
pub(super) fn renamed(body: Body, headers: &mut HeaderMap, name: (&'static str, &str)) -> Body {
    let Some(form) = Form::of(headers).filter(|_| !body.is_end_stream()) else {
        return body;
    };
    // How long it will be is not known before its name has passed.
    headers.remove(CONTENT_LENGTH);
    let renamer = Renamer::new(form, name);
    Body::new(Renamed { body, renamer })
}

/// An answer that names another model.
struct Renamed {
    body: Body,
    renamer: Renamer,
}

impl HttpBody for Renamed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            let bytes = match frame.into_data() {
                Ok(bytes) => self.renamer.pass(bytes),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            // Nothing may be left of a piece that lay within the name.
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What an answer becomes, however it is cut.
    fn passed(form: Form, text: &str) -> String {
        let in_pieces = |size: usize| {
            let mut renamer = Renamer::new(form, ("model", "asked \"x\""));
            let pieces = text.as_bytes().chunks(size);
            let out: Vec<_> = pieces
                .map(|piece| renamer.pass(Bytes::copy_from_slice(piece)))
                .collect();
            String::from_utf8(out.concat()).unwrap()
        };
        let whole = in_pieces(text.len());
        for size in 1..text.len() {
            assert_eq!(in_pieces(size), whole, "{size} bytes at a time");
        }
        whole
    }

    #[test]
    fn the_name_at_the_top_is_replaced_and_no_other() {
        for (text, changes) in [
            (r#"{"id":"model","model":"a","choices":[{"model":"b"}]}"#, true),
            (
                r#"{ "x" : [ "model" , {"model":"b"} ] , "model" : "a" , "y":1}"#,
                true,
            ),
            (r#"{"x":"\"model\":\"b\"","model":"a","message":"model"}"#, true),
            (r#"{"model":null,"models":"a","mode\u006c":"b"}"#, false),
            (
                r#"{"x":{"model":"b"},"message":{"y":{"model":"b"},"z":["model","model"]}}"#,
                false,
            ),
            (r#"["model","a",{"model":"b"}]"#, false),
            (r#""model":"a""#, false),
            (r#"{,},"model":"b"}"#, false),
        ] {
            let expected = if changes {
                text.replace(r#""a""#, r#""asked \"x\"""#)
            } else {
                text.to_owned()
            };
            assert_eq!(passed(Form::Whole, text), expected);
        }
        let nested =
            r#"{"type":"message_start","message":{"id":"m","model":"a\\\"","x":{"model":"b"}},"model":"a"}"#;
        let read: serde_json::Value = serde_json::from_str(&passed(Form::Whole, nested)).unwrap();
        assert_eq!(
            (&read["message"]["model"], &read["model"]),
            (&"asked \"x\"".into(), &"asked \"x\"".into())
        );
        assert_eq!(read["message"]["x"]["model"], "b");
    }

    #[test]
    fn each_event_and_line_begins_anew() {
        let events = "event: a\ndata: {\"model\":\"a\"\r\n\r\ndata:{\"model\":\"a\"}\n\n: {\"model\":\"a\"}\ndata: [DONE]\n\n";
        let expected = events.replacen(r#""a""#, r#""asked \"x\"""#, 2);
        assert_eq!(passed(Form::Events, events), expected);
        let lines = "{\"model\":\"a\"}\n{\"id\":\"model\",\"model\":\"a\",\"x\":1,\"model\":\"a\"}\n";
        assert_eq!(
            passed(Form::Lines, lines),
            lines.replace(r#""a""#, r#""asked \"x\"""#)
        );
    }

    #[test]
    fn what_has_no_name_is_not_copied() {
        let mut renamer = Renamer::new(Form::Events, ("model", "asked"));
        let bytes = Bytes::from_static(b"data: {\"x\":1}\n\n");
        assert_eq!(renamer.pass(bytes.clone()).as_ptr(), bytes.as_ptr());
    }

    /// As it becomes where nothing is skipped.
    fn pass_each(renamer: &mut Renamer, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for byte in bytes {
            let was_name = matches!(renamer.state, State::Name(_));
            renamer.step(*byte);
            match (was_name, matches!(renamer.state, State::Name(_))) {
                (false, true) => out.extend_from_slice(&renamer.name),
                (false, false) => out.push(*byte),
                (true, false) if *byte != b'"' => out.push(*byte),
                (true, _) => {}
            }
        }
        out
    }

    proptest! {
        #[test]
        fn what_is_skipped_names_nothing(
            parts in prop::collection::vec(
                prop::sample::select(
                    "{~}~[~]~,~:~\"~\\~\\\"~\n~\r\n~\r~ ~\"model\"~\"model\":\"a\"~{\"model\":~\"a\\\"model\"~model~mod~\"message\":{~\"response\":~\
                     \"x\":~\"\u{e9}\"~null~-0.5~data: {~data:~data~event: a~: ~\n\ndata: {\"id\":\"m\",\"model\":\"a\",\"x\":[{\"model\":\"b\"}]}\n\n"
                        .split('~')
                        .collect::<Vec<_>>(),
                ),
                0..60,
            ),
            sizes in prop::collection::vec(1..50_usize, 1..9),
            form in prop::sample::select(&[Form::Whole, Form::Lines, Form::Events][..]),
        ) {
            let answer = parts.concat();
            let new = || Renamer::new(form, ("model", "asked"));
            let (mut skips, mut each, mut sizes) = (new(), new(), sizes.iter().cycle());
            let mut rest = Bytes::from(answer);
            while !rest.is_empty() {
                let piece = rest.split_to(rest.len().min(*sizes.next().unwrap()));
                let expected = pass_each(&mut each, &piece);
                prop_assert_eq!(skips.pass(piece), expected);
            }
        }
    }
}
