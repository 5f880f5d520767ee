//! Which requests are these bytes, read as strictly as RFC 9112 allows and by nobody's library?
//!
//! It is more lenient than that in one thing alone: a line of a head may end in a bare LF (RFC 9112, 2.2, allows it), where
//! it is asked to be.

/// A request, as it was meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) old: bool,
    pub(crate) headers: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

impl Sent {
    pub(crate) fn all(&self, name: &str) -> Vec<&[u8]> {
        let named = self.headers.iter().filter(|(known, _)| known == name);
        named.map(|(_, value)| value.as_slice()).collect()
    }
}

/// Why there is no further request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// All bytes were read.
    None,
    /// What is left is the beginning of one.
    Part,
    /// What is left is none.
    Malformed,
    /// The last one says that nothing comes after it, or its framing does.
    Closed,
}

/// The requests, and why there are no more.
pub(crate) fn requests(bytes: &[u8], bare_lf: bool) -> (Vec<Sent>, Rest) {
    let mut reader = Reader { bytes, bare_lf };
    let mut requests = Vec::new();
    loop {
        // Empty lines before a request are none (RFC 9112, 2.2).
        while let Some(rest) = reader.bytes.strip_prefix(b"\r\n").or(match bare_lf {
            true => reader.bytes.strip_prefix(b"\n"),
            false => None,
        }) {
            reader.bytes = rest;
        }
        if reader.bytes.is_empty() {
            return (requests, Rest::None);
        }
        match reader.request() {
            Ok((request, goes_on)) => {
                requests.push(request);
                if !goes_on {
                    return (requests, Rest::Closed);
                }
            }
            Err(rest) => return (requests, rest),
        }
    }
}

fn is_token(bytes: &[u8]) -> bool {
    let of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.iter().all(of_token)
}

struct Reader<'a> {
    bytes: &'a [u8],
    bare_lf: bool,
}

impl<'a> Reader<'a> {
    /// A line of a head, without its end.
    fn line(&mut self) -> Result<&'a [u8], Rest> {
        let end = self
            .bytes
            .iter()
            .position(|byte| *byte == b'\n')
            .ok_or(Rest::Part)?;
        let line = &self.bytes[..end];
        self.bytes = &self.bytes[end + 1..];
        match line.strip_suffix(b"\r") {
            Some(line) => Ok(line),
            None if self.bare_lf => Ok(line),
            None => Err(Rest::Malformed),
        }
    }

    fn request(&mut self) -> Result<(Sent, bool), Rest> {
        let line = self.line()?;
        let mut parts = line.split(|byte| *byte == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Rest::Malformed);
        };
        let old = match version {
            b"HTTP/1.1" => false,
            b"HTTP/1.0" => true,
            _ => return Err(Rest::Malformed),
        };
        let graphic = |byte: &u8| *byte > b' ' && *byte != 0x7f;
        if !is_token(method) || target.is_empty() || !target.iter().all(graphic) {
            return Err(Rest::Malformed);
        }
        let headers = self.headers()?;
        let mut sent = Sent {
            method: String::from_utf8_lossy(method).into_owned(),
            target: String::from_utf8_lossy(target).into_owned(),
            old,
            headers,
            body: Vec::new(),
        };
        let (encodings, lengths) = (sent.all("transfer-encoding"), sent.all("content-length"));
        let both = !encodings.is_empty() && !lengths.is_empty();
        sent.body = match encodings.as_slice() {
            [] => self.sized(&lengths)?,
            [only] if !old && only.eq_ignore_ascii_case(b"chunked") => self.chunks()?,
            _ => return Err(Rest::Malformed),
        };
        let closes = sent.all("connection").iter().any(|value| {
            let mut words = value.split(|byte| *byte == b',');
            words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
        });
        Ok((sent, !both && !closes))
    }

    fn headers(&mut self) -> Result<Vec<(String, Vec<u8>)>, Rest> {
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(headers);
            }
            let colon = line
                .iter()
                .position(|byte| *byte == b':')
                .ok_or(Rest::Malformed)?;
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            let of_text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
            if !is_token(name) || !line[colon + 1..].iter().all(of_text) {
                return Err(Rest::Malformed);
            }
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            headers.push((name, value.to_vec()));
        }
    }

    fn sized(&mut self, lengths: &[&[u8]]) -> Result<Vec<u8>, Rest> {
        let mut length = 0;
        for (number, text) in lengths.iter().enumerate() {
            if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
                return Err(Rest::Malformed);
            }
            let digits = std::str::from_utf8(text).map_err(|_| Rest::Malformed)?;
            let said = digits.parse::<u64>().map_err(|_| Rest::Malformed)?;
            if number > 0 && said != length {
                return Err(Rest::Malformed);
            }
            length = said;
        }
        let length = usize::try_from(length).map_err(|_| Rest::Part)?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, Rest> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(Rest::Part)?;
        self.bytes = rest;
        Ok(taken.to_vec())
    }

    /// A line of the framing, which ends in CRLF in any case.
    fn framing(&mut self) -> Result<&'a [u8], Rest> {
        let lenient = std::mem::replace(&mut self.bare_lf, false);
        let line = self.line();
        self.bare_lf = lenient;
        match line {
            Ok(line) if line.contains(&b'\r') => Err(Rest::Malformed),
            line => line,
        }
    }

    fn chunks(&mut self) -> Result<Vec<u8>, Rest> {
        let mut body = Vec::new();
        loop {
            let line = self.framing()?;
            let size = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let spaces = size.trim_ascii_end();
            if spaces.is_empty() || !spaces.iter().all(u8::is_ascii_hexdigit) {
                return Err(Rest::Malformed);
            }
            let digits = std::str::from_utf8(spaces).map_err(|_| Rest::Malformed)?;
            let size = u64::from_str_radix(digits, 16).map_err(|_| Rest::Malformed)?;
            if size == 0 {
                break;
            }
            let size = usize::try_from(size).map_err(|_| Rest::Part)?;
            body.extend(self.take(size)?);
            if self.take(2)? != b"\r\n" {
                return Err(Rest::Malformed);
            }
        }
        // Trailers, of which nothing is kept.
        while !self.framing()?.is_empty() {}
        Ok(body)
    }
}

#[test]
fn it_reads_what_is_written() {
    let text = "GET /a HTTP/1.1\r\nHost:  x \r\n\r\nPOST /b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\
                3;x=y\r\nabc\r\n0\r\nt: 1\r\n\r\nPUT /c HTTP/1.0\r\ncontent-length: 2\r\n\r\nhiX";
    let (read, rest) = requests(text.as_bytes(), false);
    let short: Vec<_> = read
        .iter()
        .map(|sent| (sent.method.as_str(), sent.target.as_str(), sent.body.as_slice()))
        .collect();
    assert_eq!(
        short,
        [
            ("GET", "/a", &b""[..]),
            ("POST", "/b", b"abc"),
            ("PUT", "/c", b"hi")
        ]
    );
    assert_eq!((rest, read[0].all("host")), (Rest::Part, vec![&b"x"[..]]));
    let rest = |text: &str| requests(text.as_bytes(), true).1;
    assert_eq!(rest("GET / HTTP/1.1\n\n\n"), Rest::None);
    assert_eq!(
        rest("GET / HTTP/1.1\r\nconnection: x, close\r\n\r\n"),
        Rest::Closed
    );
    for malformed in [
        "GET  / HTTP/1.1\r\n\r\n",
        "GET / HTTP/2.0\r\n\r\n",
        "GET / HTTP/1.1\r\nx : 1\r\n\r\n",
        "GET / HTTP/1.1\r\nx: 1\r\n 2\r\n\r\n",
        "GET / HTTP/1.1\r\nx: \0\r\n\r\n",
        "PUT / HTTP/1.1\r\ncontent-length: +1\r\n\r\na",
        "PUT / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\naa",
        "PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
        "PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\naa0\r\n\r\n",
        "PUT / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ] {
        assert_eq!(rest(malformed), Rest::Malformed, "{malformed:?}");
    }
}
