//! Where does a body end that comes in chunks, and what stands behind it?
//!
//! Each chunk begins with its length in hexadecimal digits; one of length 0 is the last, and trailers may follow
//! (RFC 9112, 7.1). Whatever is written otherwise is an error: a chunk that two readers measure differently holds an answer
//! for one of them.

use http::HeaderMap;

use super::Malformed;
use super::framing::Step;
use super::head;
use super::lines::Lines;

/// The most bytes of all extensions in a body: nobody reads them.
const MOST_EXTENSIONS: usize = 16 * 1024;

/// The most bytes of trailers.
const MOST_TRAILERS: usize = 16 * 1024;

/// The most digits of a length.
const MOST_DIGITS: u8 = 16;

/// The most blanks behind a length: some servers fill it up to a width that is always the same.
const MOST_BLANKS: u8 = 32;

/// How far a body in chunks has been read.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    at: At,
    /// Bytes of extensions so far.
    extensions: usize,
    /// Those that are being read, and what they were.
    trailers: Option<Box<Trailers>>,
}

#[derive(Debug, Default)]
struct Trailers {
    bytes: Vec<u8>,
    lines: Lines,
    read: HeaderMap,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// In a length: so many digits so far, and what they come to.
    Length(u8, u64),
    /// In the blanks behind a length: so many so far.
    Blank(u8, u64),
    /// In what a `;` behind a length begins.
    Extension(u64),
    /// Behind the CR after a length.
    LengthEnd(u64),
    /// In a chunk of which so much is to come.
    Data(u64),
    /// Behind a chunk, and behind the CR there.
    DataEnd(bool),
    /// Behind the last chunk.
    Last,
    /// Behind the CR of an empty line there.
    LastEnd,
    Trailers,
    Over,
}

impl At {
    /// What nearly all servers write here, if that is what stands there as a whole, and how long it is: what is written
    /// otherwise is read byte by byte.
    fn usual(self, bytes: &[u8]) -> Option<(Self, usize)> {
        match self {
            Self::DataEnd(false) if bytes.starts_with(b"\r\n") => Some((Self::default(), 2)),
            Self::Length(0, 0) => {
                let digit = |byte: &u8| (*byte as char).to_digit(16).map(u64::from);
                let mut length = 0;
                for (read, byte) in bytes.iter().take(usize::from(MOST_DIGITS)).enumerate() {
                    match digit(byte) {
                        Some(digit) => length = length << 4 | digit,
                        None => {
                            let whole = length > 0 && bytes[read..].starts_with(b"\r\n");
                            return whole.then_some((Self::Data(length), read + 2));
                        }
                    }
                }
                None
            }
            _ => None,
        }
    }
}

impl Default for At {
    fn default() -> Self {
        Self::Length(0, 0)
    }
}

impl Chunks {
    pub(super) fn is_over(&self) -> bool {
        matches!(self.at, At::Over)
    }

    /// The trailers, once it is over, if there are any.
    pub(super) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take().map(|trailers| trailers.read)
    }

    /// Looks at what has come next.
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        let mut read = 0;
        while let Some(byte) = bytes.get(read) {
            match self.at {
                At::Over => break,
                At::Data(left) => {
                    if read > 0 {
                        break;
                    }
                    let taken = (bytes.len() as u64).min(left);
                    self.at = match left - taken {
                        0 => At::DataEnd(false),
                        left => At::Data(left),
                    };
                    return Ok(Step::Data(taken as usize));
                }
                at => {
                    if let Some((after, taken)) = at.usual(&bytes[read..]) {
                        self.at = after;
                        read += taken;
                        continue;
                    }
                    self.frame(*byte)?;
                }
            }
            read += 1;
        }
        Ok(Step::Frame(read))
    }

    /// Reads a byte that is none of the body.
    fn frame(&mut self, byte: u8) -> Result<(), Malformed> {
        self.at = match (self.at, byte) {
            (At::Length(digits, length), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                if digits == MOST_DIGITS {
                    return Err(Malformed::from("the length of a chunk is too long"));
                }
                At::Length(digits + 1, length << 4 | digit)
            }
            (At::Length(1.., length), b' ' | b'\t') => At::Blank(1, length),
            (At::Blank(blanks, length), b' ' | b'\t') if blanks < MOST_BLANKS => {
                At::Blank(blanks + 1, length)
            }
            (At::Length(1.., length) | At::Blank(_, length), b';') => At::Extension(length),
            (At::Length(1.., length) | At::Blank(_, length) | At::Extension(length), b'\r') => {
                At::LengthEnd(length)
            }
            (At::Blank(..), _) => {
                return Err(Malformed::from(
                    "behind the length of a chunk stands another word",
                ));
            }
            (At::Length(..), _) => return Err(Malformed::from("the length of a chunk is no number")),
            (At::Extension(_), 0..=8 | 10..=31 | 127) => {
                return Err(Malformed::from("the extension of a chunk holds what it may not"));
            }
            (At::Extension(length), _) => At::Extension(length),
            (At::LengthEnd(0), b'\n') => At::Last,
            (At::LengthEnd(length), b'\n') => At::Data(length),
            (At::DataEnd(false), b'\r') => At::DataEnd(true),
            (At::DataEnd(true), b'\n') => At::default(),
            (At::LengthEnd(_) | At::DataEnd(_), _) => {
                return Err(Malformed::from("a chunk does not end where it should"));
            }
            (At::Last, b'\r') => At::LastEnd,
            (At::LastEnd, b'\n') => At::Over,
            (At::LastEnd, _) => return Err(Malformed::from("a CR stands alone")),
            (At::Last | At::Trailers, _) => self.trailer(byte)?,
            (at @ (At::Data(_) | At::Over), _) => at,
        };
        if matches!(self.at, At::Extension(_)) {
            self.extensions += 1;
            if self.extensions > MOST_EXTENSIONS {
                return Err(Malformed::from("the extensions of chunks are longer than 16 KiB"));
            }
        }
        Ok(())
    }

    fn trailer(&mut self, byte: u8) -> Result<At, Malformed> {
        let trailers = self.trailers.get_or_insert_default();
        trailers.bytes.push(byte);
        if trailers.bytes.len() > MOST_TRAILERS {
            return Err(Malformed::from("its trailers are longer than 16 KiB"));
        }
        if trailers.lines.end(&trailers.bytes)?.is_none() {
            return Ok(At::Trailers);
        }
        let bytes = std::mem::take(&mut trailers.bytes);
        trailers.read = head::read_trailers(&bytes, trailers.lines.count())?;
        Ok(At::Over)
    }
}
