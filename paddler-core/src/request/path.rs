//! Which path does the engine see?
//!
//! Whether a path is open or closed is judged by its text, and engines decode, join and trim paths each in their own way.
//! So one form is judged *and sent on*, and what could be read in two ways is refused.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

/// Why a path is refused: 400.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PathError {
    /// It does not start with `/`.
    NotAbsolute,
    /// It still has its query or fragment: there is a `?` or `#` in it.
    NotOnlyPath,
    /// A `%` without two hex digits after it.
    InvalidEscape,
    /// A `/` in its encoded form: engines disagree on whether it separates segments.
    EncodedSlash,
    /// A `%` in its encoded form before two hex digits: it would be decoded twice on a way with two proxies.
    DoubleEncoded,
    /// A backslash, a control character, or a space that is not encoded; or one of the first two in encoded form.
    Forbidden {
        /// The byte, decoded.
        byte: u8,
    },
    /// Its `..` lead out of the root.
    AboveRoot,
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAbsolute => f.write_str("the path must start with `/`"),
            Self::NotOnlyPath => f.write_str("a path holds no `?` or `#`: encode them as %3F and %23"),
            Self::InvalidEscape => {
                f.write_str("after `%` in a path come two hex digits: encode `%` itself as %25")
            }
            Self::EncodedSlash => f.write_str("a path must not hold an encoded slash (%2F): send `/`"),
            Self::DoubleEncoded => f.write_str("a path must not be encoded twice (%25 and two hex digits)"),
            Self::Forbidden { byte } => {
                write!(f, "a path must not hold the byte 0x{byte:02x}, not even encoded")
            }
            Self::AboveRoot => f.write_str("the `..` of a path must not lead out of its root"),
        }
    }
}

impl Error for PathError {}

/// The one form of a path by which it is judged. Send this form on, not the one that came.
///
/// Letters, digits, `-`, `.`, `_` and `~` are decoded, other escapes stay and get upper-case digits; repeated slashes are
/// one; `.` and `..` are resolved; a slash at the end goes. Case counts. A path in this form comes back as it is.
///
/// ```
/// use paddler_core::request::path::{PathError, normalise};
///
/// for path in ["/slots", "//slots", "/%73lots", "/slots/", "/v1/../slots", "/./slots"] {
///     assert_eq!(normalise(path).unwrap(), "/slots");
/// }
/// assert_eq!(normalise("/v1%2f..%2fslots"), Err(PathError::EncodedSlash));
/// ```
///
/// # Errors
/// [`PathError`] for what engines could read in two ways.
pub fn normalise(path: &str) -> Result<Cow<'_, str>, PathError> {
    if is_plain(path) {
        return Ok(Cow::Borrowed(path));
    }
    if !path.starts_with('/') {
        return Err(PathError::NotAbsolute);
    }
    let decoded = decode(path)?;
    let mut normal = String::with_capacity(decoded.len());
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => normal.truncate(normal.rfind('/').ok_or(PathError::AboveRoot)?),
            _ => {
                normal.push('/');
                normal.push_str(segment);
            }
        }
    }
    if normal.is_empty() {
        normal.push('/');
    }
    Ok(if normal == path {
        Cow::Borrowed(path)
    } else {
        Cow::Owned(normal)
    })
}

/// Whether it is a path in its normal form, without anything that needs a closer look.
fn is_plain(path: &str) -> bool {
    let simple = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~');
    path.strip_prefix('/').is_some_and(|rest| {
        let mut after_slash = true;
        let fits = rest.bytes().all(|byte| {
            let fits = simple(byte) || (!after_slash && matches!(byte, b'/' | b'.'));
            after_slash = byte == b'/';
            fits
        });
        fits && (rest.is_empty() || !after_slash)
    })
}

fn decode(path: &str) -> Result<String, PathError> {
    let mut decoded = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(character) = rest.chars().next() {
        if character == '%' {
            let byte = escape(rest)?;
            rest = &rest[3..];
            match byte {
                b'/' => return Err(PathError::EncodedSlash),
                b'%' if escape_digits(rest.as_bytes()).is_some() => return Err(PathError::DoubleEncoded),
                b'\\' | 0..0x20 | 0x7F => return Err(PathError::Forbidden { byte }),
                b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                    decoded.push(char::from(byte));
                }
                _ => decoded.push_str(&format!("%{byte:02X}")),
            }
        } else {
            match character {
                '?' | '#' => return Err(PathError::NotOnlyPath),
                '\\' | '\0'..=' ' | '\x7F' => {
                    return Err(PathError::Forbidden {
                        byte: character as u8,
                    });
                }
                _ => decoded.push(character),
            }
            rest = &rest[character.len_utf8()..];
        }
    }
    Ok(decoded)
}

/// What a part of a path or query stands for. What is no escape stands for itself, and what is no text shows as `U+FFFD`.
///
/// ```
/// use paddler_core::request::path::decode_part;
///
/// assert_eq!(decode_part("gpu%2F1:8080"), "gpu/1:8080");
/// assert_eq!(decode_part("25%"), "25%");
/// ```
pub fn decode_part(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [byte, after @ ..] = rest {
        let escaped = (*byte == b'%').then(|| escape_digits(after)).flatten();
        bytes.push(escaped.unwrap_or(*byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A text as it stands in a part of a query or path: what could mean something else there is encoded.
///
/// ```
/// use paddler_core::request::path::{decode_part, encode_part};
///
/// assert_eq!(encode_part("meta/llama 3&4"), "meta%2Fllama%203%264");
/// assert_eq!(decode_part(&encode_part("é/%")), "é/%");
/// ```
pub fn encode_part(text: &str) -> String {
    let mut part = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            part.push(char::from(byte));
        } else {
            part.push_str(&format!("%{byte:02X}"));
        }
    }
    part
}

/// The byte that the escape at the start of `text` stands for.
fn escape(text: &str) -> Result<u8, PathError> {
    escape_digits(&text.as_bytes()[1..]).ok_or(PathError::InvalidEscape)
}

fn escape_digits(bytes: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    u8::try_from(digit(0)? << 4 | digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_escape_stands_for_itself() {
        for (part, expected) in [
            ("10.0.0.3%3A8080", "10.0.0.3:8080"),
            ("a%2fb%25%zz%4", "a/b%%zz%4"),
            ("%e2%82%ac+%ff%é", "€+\u{fffd}%é"),
            ("", ""),
        ] {
            assert_eq!(decode_part(part), expected);
        }
    }

    #[test]
    fn each_odd_thing() {
        for (path, expected) in [
            ("/", Ok("/")),
            ("//", Ok("/")),
            ("/.", Ok("/")),
            ("/v1/..", Ok("/")),
            ("/v1//models///", Ok("/v1/models")),
            ("/v1/%2e%2E/%73lots", Ok("/slots")),
            ("/a/.hidden", Ok("/a/.hidden")),
            ("/a/...", Ok("/a/...")),
            ("/a.b/c.d", Ok("/a.b/c.d")),
            ("/Slots", Ok("/Slots")),
            ("/models/a%3ab%20c", Ok("/models/a%3Ab%20c")),
            ("/models/%c3%a9", Ok("/models/%C3%A9")),
            ("/models/é", Ok("/models/é")),
            ("/100%25", Ok("/100%25")),
            ("", Err(PathError::NotAbsolute)),
            ("*", Err(PathError::NotAbsolute)),
            ("slots", Err(PathError::NotAbsolute)),
            ("/..", Err(PathError::AboveRoot)),
            ("/a/../../slots", Err(PathError::AboveRoot)),
            ("/%", Err(PathError::InvalidEscape)),
            ("/%7", Err(PathError::InvalidEscape)),
            ("/%7g", Err(PathError::InvalidEscape)),
            ("/%é", Err(PathError::InvalidEscape)),
            ("/v1%2Fmodels", Err(PathError::EncodedSlash)),
            ("/%2573lots", Err(PathError::DoubleEncoded)),
            ("/a?b", Err(PathError::NotOnlyPath)),
            ("/a#b", Err(PathError::NotOnlyPath)),
            ("/a\\b", Err(PathError::Forbidden { byte: b'\\' })),
            ("/a%5cb", Err(PathError::Forbidden { byte: b'\\' })),
            ("/a%00", Err(PathError::Forbidden { byte: 0 })),
            ("/a b", Err(PathError::Forbidden { byte: b' ' })),
        ] {
            assert_eq!(normalise(path).as_deref(), expected.as_deref(), "{path}");
        }
    }
}
