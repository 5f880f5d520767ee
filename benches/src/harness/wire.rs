//! Where does an HTTP/1.1 message end, read at the least cost to the machine that is being measured?

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// After so many bytes.
    Length(usize),
    /// With an empty chunk.
    Chunked,
}

/// What the head of a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Where the body begins.
    pub end: usize,
    /// How the body ends.
    pub framing: Framing,
    /// The connection ends with this message.
    pub closes: bool,
}

/// The head at the start of these bytes; `None` until it is whole.
#[must_use]
pub fn head(bytes: &[u8]) -> Option<Head> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let mut head = Head {
        end,
        framing: Framing::Length(0),
        closes: false,
    };
    for line in bytes[..end].split(|byte| *byte == b'\n').skip(1) {
        let Some((name, value)) = split(line) else {
            continue;
        };
        if name.eq_ignore_ascii_case(b"content-length") {
            let digits = std::str::from_utf8(value).unwrap_or_default();
            head.framing = Framing::Length(digits.parse().unwrap_or_default());
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            head.framing = Framing::Chunked;
        } else if name.eq_ignore_ascii_case(b"connection") {
            head.closes = value.eq_ignore_ascii_case(b"close");
        }
    }
    Some(head)
}

fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii()))
}

/// Whether a message with this status line succeeded.
#[must_use]
pub fn is_ok(bytes: &[u8]) -> bool {
    bytes.starts_with(b"HTTP/1.1 200 ")
}

/// The length of a whole chunked body without its framing, and where it ends; `None` until it is whole, or when it is none.
#[must_use]
pub fn chunked(bytes: &[u8]) -> Option<(usize, usize)> {
    let (mut length, mut at) = (0, 0);
    loop {
        let line = bytes[at..].windows(2).position(|two| two == b"\r\n")?;
        let digits = bytes[at..at + line].split(|byte| *byte == b';').next()?;
        let size = usize::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        at += line + 2 + size + 2;
        length += size;
        if bytes.len() < at {
            return None;
        }
        if size == 0 {
            return Some((length, at));
        }
    }
}

/// The length of the body of the answer at the start of these bytes, once it is whole.
#[must_use]
pub fn whole(bytes: &[u8]) -> Option<(Head, usize)> {
    let head = head(bytes)?;
    let length = match head.framing {
        Framing::Length(length) => (bytes.len() >= head.end + length).then_some(length)?,
        Framing::Chunked => chunked(&bytes[head.end..])?.0,
    };
    Some((head, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_whole_with_its_last_byte_and_not_before() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nconnection: close\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        ] {
            for cut in 0..text.len() {
                assert_eq!(whole(&text.as_bytes()[..cut]), None, "{text:?} up to {cut}");
            }
            let (head, length) = whole(text.as_bytes()).unwrap();
            assert_eq!(length, 5);
            assert!(head.closes);
        }
    }

    #[test]
    fn a_message_without_a_length_has_no_body() {
        let (head, length) = whole(b"HTTP/1.1 204 No Content\r\nx: y\r\n\r\n").unwrap();
        assert_eq!((head.closes, length), (false, 0));
        assert!(!is_ok(b"HTTP/1.1 204 No Content\r\n"));
    }
}
