//! Where does one message of a stream end and the next begin?
//!
//! A stream of messages is a row of JSON objects, whatever stands between them. Chunks of HTTP say nothing about it: one may hold
//! several messages, and a message may come in many, cut anywhere, also inside a character. Each byte is looked at once.

use std::fmt;

/// Why a stream cannot be read on, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Which message it was, from 1.
    pub message: u64,
    /// Where that began, in bytes from the start of the stream.
    pub at: u64,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, at, why } = self;
        write!(f, "message {message}, which begins at byte {at}: {why}")
    }
}

impl std::error::Error for Unreadable {}

/// What has come of a stream and is not a whole message yet.
#[derive(Debug)]
pub(super) struct Frames {
    largest: usize,
    bytes: Vec<u8>,
    /// Where the message that is being read begins.
    start: usize,
    /// How far it was looked at.
    looked: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
    messages: u64,
    /// Bytes of the stream before those that are held.
    before: u64,
}

impl Frames {
    /// Nothing yet, of a stream whose messages are of so many bytes at most.
    pub(super) fn new(largest: usize) -> Self {
        Self {
            largest,
            bytes: Vec::new(),
            start: 0,
            looked: 0,
            depth: 0,
            in_string: false,
            escaped: false,
            messages: 0,
            before: 0,
        }
    }

    /// These bytes have come, after those before.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.start);
        self.before += self.start as u64;
        self.looked -= self.start;
        self.start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message, if there is one.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, Unreadable> {
        if self.depth == 0 {
            let rest = &self.bytes[self.start..];
            let blank = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            self.start += blank;
            self.looked = self.start;
            match self.bytes.get(self.start) {
                None => return Ok(None),
                Some(b'{') => {}
                Some(other) => {
                    let what = char::from(*other).escape_default();
                    return Err(self.unreadable(format!("a JSON object begins with {{, not with {what}")));
                }
            }
        }
        let end = self.end();
        let length = end.unwrap_or(self.bytes.len()) - self.start;
        if length > self.largest {
            return Err(self.unreadable(format!("it is longer than {} bytes", self.largest)));
        }
        let Some(end) = end else { return Ok(None) };
        let message = &self.bytes[self.start..end];
        self.messages += 1;
        self.start = end;
        Ok(Some(message))
    }

    /// What is wrong with the message that is being read.
    pub(super) fn unreadable(&self, why: String) -> Unreadable {
        Unreadable {
            message: self.messages + 1,
            at: self.before + self.start as u64,
            why,
        }
    }

    /// What is wrong with the message that was read last.
    pub(super) fn misread(&self, length: usize, why: String) -> Unreadable {
        Unreadable {
            message: self.messages,
            at: self.before + (self.start - length) as u64,
            why,
        }
    }

    /// Whether the stream may end here.
    pub(super) fn ends_well(&self) -> bool {
        self.depth == 0
    }

    /// Where the object ends that has begun.
    fn end(&mut self) -> Option<usize> {
        while let Some(byte) = self.bytes.get(self.looked) {
            self.looked += 1;
            match byte {
                _ if std::mem::take(&mut self.escaped) => {}
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(self.looked);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = " {\"a\": \"}é\\\"{\"}\r\n{\"b\":[{},{\"c\":\"\\\\\"}]}{}\n";

    fn read(pieces: impl IntoIterator<Item = Vec<u8>>) -> Vec<String> {
        let (mut frames, mut read) = (Frames::new(64), Vec::new());
        for piece in pieces {
            frames.push(&piece);
            while let Some(message) = frames.next().unwrap() {
                read.push(String::from_utf8(message.to_vec()).unwrap());
            }
        }
        assert!(frames.ends_well());
        read
    }

    #[test]
    fn messages_are_the_same_however_the_stream_is_cut() {
        let bytes = STREAM.as_bytes();
        let whole = read([bytes.to_vec()]);
        assert_eq!(
            whole,
            ["{\"a\": \"}é\\\"{\"}", "{\"b\":[{},{\"c\":\"\\\\\"}]}", "{}"]
        );
        for length in 1..bytes.len() {
            assert_eq!(
                read(bytes.chunks(length).map(<[u8]>::to_vec)),
                whole,
                "{length} at a time"
            );
        }
    }

    #[test]
    fn what_is_no_message_has_its_place() {
        let mut frames = Frames::new(8);
        frames.push(b"{} \n");
        assert!(frames.next().unwrap().is_some() && frames.next().unwrap().is_none());
        frames.push(b" ]");
        let error = frames.next().unwrap_err();
        assert_eq!((error.message, error.at), (2, 5));

        let mut frames = Frames::new(8);
        frames.push(b"{\"a\":\"12");
        assert!(frames.next().unwrap().is_none() && !frames.ends_well());
        frames.push(b"34");
        let error = frames.next().unwrap_err();
        assert!(error.to_string().ends_with("longer than 8 bytes"), "{error}");
    }
}
