//! Who may use the router?

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

use super::options::Authorise;

/// Keys that clients may present. Only their hashes are held, and comparing takes the same time for every wrong key.
#[derive(Clone)]
pub struct Keys(Vec<[u8; 32]>);

/// Why a text holds no keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKeys {
    /// There is none: a door that nobody can open is a mistake.
    None,
    /// A key has characters that no client can send in a header.
    NotVisible {
        /// The line, from 1.
        line: usize,
    },
}

impl fmt::Display for InvalidKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str(
                "there is no key: write one on each line; empty lines and those that begin with # do not count",
            ),
            Self::NotVisible { line } => write!(
                f,
                "the key in line {line} cannot be sent in a header: write visible ASCII characters"
            ),
        }
    }
}

impl std::error::Error for InvalidKeys {}

impl Keys {
    /// Reads one key from each line. Empty lines and those that begin with `#` do not count.
    ///
    /// ```
    /// use paddler_core::forward::{Authorise, Keys};
    ///
    /// let keys = Keys::read("# team a\nsk-1\n\nsk-2\n")?;
    /// assert!(keys.allows(b"sk-2"));
    /// assert!(!keys.allows(b"sk-3") && !keys.allows(b""));
    /// assert!(Keys::read("# none\n").is_err());
    /// # Ok::<(), paddler_core::forward::InvalidKeys>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidKeys`] when there is none, or one that nobody can send.
    pub fn read(text: &str) -> Result<Self, InvalidKeys> {
        // Some editors put a mark before the first line.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let key = line.trim();
            if key.is_empty() || key.starts_with('#') {
                continue;
            }
            if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(InvalidKeys::NotVisible { line: index + 1 });
            }
            keys.push(Sha256::digest(key).into());
        }
        if keys.is_empty() {
            Err(InvalidKeys::None)
        } else {
            Ok(Self(keys))
        }
    }
}

impl Keys {
    /// Whether this is one of them.
    pub fn has(&self, key: &[u8]) -> bool {
        let presented: [u8; 32] = Sha256::digest(key).into();
        // Every key is compared, so the time does not tell which one came close.
        let any = self
            .0
            .iter()
            .fold(Choice::from(0), |any, known| any | known.ct_eq(&presented));
        any.into()
    }
}

impl Authorise for Keys {
    fn allows(&self, key: &[u8]) -> bool {
        self.has(key)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_before_the_first_line_is_no_part_of_a_key() {
        assert!(Keys::read("\u{feff}sk-1\r\nsk-2").unwrap().allows(b"sk-1"));
        assert_eq!(Keys::read("\u{feff}# team a\n").unwrap_err(), InvalidKeys::None);
        assert_eq!(
            Keys::read("sk-1\nsk 2\n").unwrap_err(),
            InvalidKeys::NotVisible { line: 2 }
        );
        assert_eq!(
            Keys::read("ключ").unwrap_err(),
            InvalidKeys::NotVisible { line: 1 }
        );
    }
}
