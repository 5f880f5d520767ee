//! What is wrong with a body, and where?

use std::error::Error;
use std::fmt;

/// What is wrong with a request body. The text of each is its `Display`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ScanErrorKind {
    /// There is nothing but white space.
    Empty,
    /// The first value is something else than an object.
    NotAnObject,
    /// The body ends before its object does.
    Truncated,
    /// A byte that cannot stand here.
    Unexpected {
        /// The byte that was found.
        found: u8,
        /// What could have stood there, in words.
        expected: &'static str,
    },
    /// Something other than white space follows the object.
    TrailingData,
    /// A number that JSON does not know, such as `01`, `1.` or `+1`.
    InvalidNumber,
    /// A backslash followed by something that JSON does not know.
    InvalidEscape,
    /// A character below U+0020 stands in a string as it is.
    ControlCharacter {
        /// The byte that was found, 0 to 31.
        found: u8,
    },
    /// The bytes of a string are not UTF-8.
    InvalidUtf8,
    /// More containers are open at once than the limit allows.
    TooDeep {
        /// The limit, in containers.
        limit: usize,
    },
    /// A top-level value has a type from which no fact can be read.
    WrongType {
        /// The key, spelled as engines know it.
        key: &'static str,
        /// What its value must be, in words.
        expected: &'static str,
    },
    /// Several top-level keys spell `model`, ignoring case, and their values differ.
    AmbiguousModel,
    /// A form is not one, or could be read in two ways.
    MalformedForm {
        /// What is wrong, in words.
        problem: &'static str,
    },
    /// The `Content-Type` of a form does not say, or not in one way, what its parts are separated by.
    NoBoundary,
    /// More top-level keys spell `model`, ignoring case, than are kept track of.
    RepeatedModel {
        /// The most that are allowed.
        limit: usize,
    },
}

impl std::error::Error for ScanErrorKind {}

impl fmt::Display for ScanErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the body is empty: send a JSON object"),
            Self::NotAnObject => f.write_str("the body must be a JSON object, starting with `{`"),
            Self::Truncated => f.write_str("the body ends before its JSON object is complete: was it cut short?"),
            Self::Unexpected { found, expected } => {
                write!(f, "expected {expected}, found {}", Byte(*found))
            }
            Self::TrailingData => f.write_str("the JSON object is complete: remove what follows it"),
            Self::InvalidNumber => {
                f.write_str("not a JSON number: write it like 10, -1, 0.5 or 1e3, without leading zeros")
            }
            Self::InvalidEscape => f.write_str(
                "not a JSON escape: after a backslash comes one of \" \\ / b f n r t, or u and four hex digits",
            ),
            Self::ControlCharacter { found } => {
                write!(f, "a string holds the control character {}: write it as \\u{found:04x}", Byte(*found))
            }
            Self::InvalidUtf8 => f.write_str("a string is not valid UTF-8: send the body encoded as UTF-8"),
            Self::TooDeep { limit } => write!(f, "arrays and objects nest deeper than {limit}: send a flatter body"),
            Self::WrongType { key, expected } => write!(f, "`{key}` must be {expected}"),
            Self::MalformedForm { problem } => write!(f, "the form cannot be read: {problem}"),
            Self::NoBoundary => f.write_str(
                "the Content-Type of a form needs one boundary of 1 to 70 characters: let your client's library make it",
            ),
            Self::AmbiguousModel => {
                f.write_str("`model` is given more than once (ignoring case), with different values: give it once")
            }
            Self::RepeatedModel { limit } => {
                write!(f, "`model` is given more than {limit} times (ignoring case): give it once")
            }
        }
    }
}

/// A byte in a message: as it is where it can be read, else in hex.
struct Byte(u8);

impl fmt::Display for Byte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_ascii_graphic() {
            write!(f, "`{}`", char::from(self.0))
        } else {
            write!(f, "the byte 0x{:02x}", self.0)
        }
    }
}

/// Why a body could not be read, and the place. It is the same however the body was cut into chunks.
///
/// ```
/// use paddler_core::request::{ScanLimits, Scanner};
///
/// let mut scanner = Scanner::new(ScanLimits::default());
/// let error = scanner.feed(b"{\"model\":\n 7}").unwrap_err();
/// assert_eq!(error.to_string(), "line 2, column 2 (byte 11): `model` must be a string");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanError {
    pub(super) kind: ScanErrorKind,
    pub(super) offset: u64,
    pub(super) line: u64,
    pub(super) column: u64,
}

impl ScanError {
    /// Whether the body can be read in two ways as to who is asked for: it is refused wherever a body may name a model.
    pub(crate) fn is_ambiguous(&self) -> bool {
        let kind = self.kind();
        matches!(
            kind,
            ScanErrorKind::AmbiguousModel | ScanErrorKind::RepeatedModel { .. }
        )
    }

    /// What is wrong.
    pub fn kind(&self) -> &ScanErrorKind {
        &self.kind
    }

    /// Where: how many bytes of the body come before the fault.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where: the line, counted from 1. 0 in a form, which has none.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Where: the byte within the line, counted from 1. 0 in a form.
    pub fn column(&self) -> u64 {
        self.column
    }
}

impl fmt::Display for ScanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            offset,
            line,
            column,
        } = self;
        if *line == 0 {
            return write!(f, "byte {offset}: {kind}");
        }
        write!(f, "line {line}, column {column} (byte {offset}): {kind}")
    }
}

impl Error for ScanError {}
