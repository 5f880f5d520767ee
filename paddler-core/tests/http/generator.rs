//! What comes close to a request?
//!
//! Sound requests of every kind, into which faults are put: in the framing, in the lines, in single bytes.

/// A stream of numbers from a seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below this, which is not zero.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap_or_default()
    }

    pub(crate) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub(crate) fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

const METHODS: [&str; 8] = [
    "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "PADDLE",
];

const LENGTHS: [&str; 18] = [
    "+5",
    "-1",
    "0x5",
    "5, 5",
    "5,6",
    "",
    " ",
    "05",
    "5 5",
    "5\t",
    "99999999999999999999",
    "5.0",
    "5e0",
    "1_0",
    "\u{b}5",
    "5;",
    "\"5\"",
    "18446744073709551615",
];

const ENCODINGS: [&str; 18] = [
    "chunked",
    "Chunked",
    " chunked",
    "chunked ",
    "\tchunked",
    "xchunked",
    "chunked, identity",
    "identity, chunked",
    "identity",
    "chunked;q=1",
    "\"chunked\"",
    "chunked, chunked",
    ", chunked",
    "gzip, chunked",
    "\u{b}chunked",
    "",
    "chun ked",
    "chunked\0",
];

const NAMES: [&str; 12] = [
    "transfer-encoding ",
    "transfer_encoding",
    "Transfer-Encoding\t",
    " transfer-encoding",
    "x-transfer-encoding",
    "content-length ",
    "content_length",
    " content-length",
    "content-length\0",
    "Content-Length\u{a0}",
    "host ",
    "expect",
];

const SIZES: [&str; 16] = [
    "+3",
    "0x3",
    "-3",
    "3 ",
    " 3",
    "3;x=y",
    "3;\n",
    "3\n",
    "10000000000000003",
    "FFFFFFFFFFFFFFFFF",
    "",
    ";",
    "3_0",
    "3\r",
    "0",
    "ffffffffffffffff",
];

const BYTES: [u8; 16] = [
    0, 9, 10, 11, 12, 13, 32, b':', b';', b',', b'"', b'/', b'%', 127, 128, 255,
];

const ENDS: [&str; 7] = ["\n", "\r", "\r\r\n", "", "\n\r", "\r\n\r\n", "\r\n "];

/// What is hidden in bodies, to be taken for the next request.
const HIDDEN: [&str; 5] = [
    "GET /hidden HTTP/1.1\r\nhost: x\r\n\r\n",
    "0\r\n\r\nGET /hidden HTTP/1.1\r\nhost: x\r\n\r\n",
    "\r\n\r\nPOST /hidden HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "DELETE /slots HTTP/1.0\r\n\r\n",
];

pub(crate) struct Generator {
    random: Random,
    number: u64,
}

impl Generator {
    pub(crate) fn new(random: Random) -> Self {
        Self { random, number: 0 }
    }

    /// A request.
    pub(crate) fn sound(&mut self, into: &mut Vec<u8>) {
        into.extend(self.request());
    }

    /// A request with one to three faults in it.
    pub(crate) fn faulty(&mut self, into: &mut Vec<u8>) {
        let mut text = self.request();
        for _ in 0..=self.random.below(3) {
            self.spoil(&mut text);
        }
        into.extend(text);
    }

    /// A request after which the connection ends.
    pub(crate) fn last(&mut self, into: &mut Vec<u8>) {
        let text = "GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        into.extend(text.bytes());
    }

    fn request(&mut self) -> Vec<u8> {
        self.number += 1;
        let mut method = self.random.of(&METHODS);
        let version = if self.random.one_in(12) { "1.0" } else { "1.1" };
        let with_body = self.random.one_in(2);
        if with_body && !matches!(method, "POST" | "PUT" | "PATCH" | "DELETE") && !self.random.one_in(8) {
            method = "POST";
        }
        let target = match self.random.below(12) {
            0 => format!("/r{}?q=%20&a=b", self.number),
            1 => format!("http://localhost/r{}", self.number),
            2 => format!("//r{}/./x/../y", self.number),
            3 => "/health".to_owned(),
            4 => format!("http://elsewhere/r{}", self.number),
            _ => format!("/r{}", self.number),
        };
        let mut head = format!("{method} {target} HTTP/{version}\r\nhost: x\r\n");
        if self.random.one_in(6) {
            head.push_str("expect: 100-continue\r\n");
        }
        if self.random.one_in(6) {
            head.push_str("connection: keep-alive, x-hop\r\nx-hop: 1\r\nte: trailers\r\nupgrade: h2c\r\n");
        }
        if !with_body {
            return (head + "\r\n").into_bytes();
        }
        let body = match self.random.below(3) {
            0 => "{\"x\": 1}".to_owned(),
            1 => self.random.of(&HIDDEN).to_owned(),
            _ => "y".repeat(self.random.below(40)),
        };
        if self.random.one_in(2) {
            return format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes();
        }
        let mut text = format!("{head}transfer-encoding: chunked\r\n\r\n");
        let (first, second) = body.split_at(body.len() / 2);
        for part in [first, second].into_iter().filter(|part| !part.is_empty()) {
            let extension = if self.random.one_in(5) { ";a=\"b\"" } else { "" };
            text.push_str(&format!("{:x}{extension}\r\n{part}\r\n", part.len()));
        }
        text.push_str(if self.random.one_in(5) {
            "0\r\nx-t: 1\r\n\r\n"
        } else {
            "0\r\n\r\n"
        });
        text.into_bytes()
    }

    /// Puts a fault in.
    fn spoil(&mut self, text: &mut Vec<u8>) {
        match self.random.below(14) {
            0 => self.replace_a(text, b"content-length: ", &LENGTHS),
            1 => self.replace_a(text, b"transfer-encoding: ", &ENCODINGS),
            2 => self.add_line(text, "content-length: ", &LENGTHS),
            3 => self.add_line(text, "transfer-encoding: ", &ENCODINGS),
            4 => {
                let length = self.random.below(60);
                self.add_line(text, "content-length: ", &[length.to_string().as_str()]);
            }
            5 => {
                let name = self.random.of(&NAMES);
                self.add_line(text, &format!("{name}: "), &["chunked", "0", "3", "x"]);
            }
            6 => self.replace_end(text),
            7 => self.replace_size(text),
            8 => self.insert_byte(text),
            9 => {
                let at = self.random.below(text.len().max(1));
                if at < text.len() {
                    text.remove(at);
                }
            }
            10 => {
                let at = self.random.below(text.len() + 1);
                text.truncate(at);
            }
            11 => self.copy_slice(text),
            12 => self.add_line(text, " ", &["folded: 1", "\tx", ""]),
            _ => {
                let hidden = self.random.of(&HIDDEN);
                let at = self.random.below(text.len() + 1);
                text.splice(at..at, hidden.bytes());
            }
        }
    }

    fn insert_byte(&mut self, text: &mut Vec<u8>) {
        let byte = match self.random.one_in(4) {
            true => u8::try_from(self.random.below(256)).unwrap_or_default(),
            false => BYTES[self.random.below(BYTES.len())],
        };
        let at = self.random.below(text.len() + 1);
        text.insert(at, byte);
    }

    fn copy_slice(&mut self, text: &mut Vec<u8>) {
        let from = self.random.below(text.len() + 1);
        let to = (from + self.random.below(30)).min(text.len());
        let slice = text[from..to].to_vec();
        let at = self.random.below(text.len() + 1);
        text.splice(at..at, slice);
    }

    /// Replaces what stands behind these words, up to the end of the line.
    fn replace_a(&mut self, text: &mut Vec<u8>, words: &[u8], by: &[&str]) {
        let Some(at) = find(text, words) else { return };
        let from = at + words.len();
        let length = text[from..].iter().position(|byte| *byte == b'\r').unwrap_or(0);
        let value = bytes(self.random.of(by));
        text.splice(from..from + length, value);
    }

    fn add_line(&mut self, text: &mut Vec<u8>, name: &str, values: &[&str]) {
        let line = format!("{name}{}\r\n", self.random.of(values));
        // After the request line, or after the first header.
        let Some(first) = find(text, b"\r\n") else { return };
        let at = match find(&text[first + 2..], b"\r\n") {
            Some(second) if self.random.one_in(2) => first + 2 + second + 2,
            _ => first + 2,
        };
        text.splice(at..at, bytes(&line));
    }

    fn replace_end(&mut self, text: &mut Vec<u8>) {
        let ends: Vec<usize> = (0..text.len().saturating_sub(1))
            .filter(|at| text[*at..].starts_with(b"\r\n"))
            .collect();
        if ends.is_empty() {
            return;
        }
        let at = ends[self.random.below(ends.len())];
        let end = bytes(self.random.of(&ENDS));
        text.splice(at..at + 2, end);
    }

    fn replace_size(&mut self, text: &mut Vec<u8>) {
        let Some(head) = find(text, b"\r\n\r\n") else {
            return;
        };
        let from = head + 4;
        let length = text[from..].iter().position(|byte| *byte == b'\r').unwrap_or(0);
        let size = bytes(self.random.of(&SIZES));
        text.splice(from..from + length, size);
    }
}

/// Each character is a byte.
fn bytes(text: &str) -> Vec<u8> {
    text.chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?'))
        .collect()
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|window| window == words)
}
