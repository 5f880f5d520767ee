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
pub struct InvalidKeys;

impl fmt::Display for InvalidKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "there is no key: write one on each line; empty lines and those that begin with # do not count",
        )
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
    /// [`InvalidKeys`] when there is none: a door that nobody can open is a mistake.
    pub fn read(text: &str) -> Result<Self, InvalidKeys> {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<_> = lines.map(|key| Sha256::digest(key).into()).collect();
        if keys.is_empty() {
            Err(InvalidKeys)
        } else {
            Ok(Self(keys))
        }
    }
}

impl Authorise for Keys {
    fn allows(&self, key: &[u8]) -> bool {
        let presented: [u8; 32] = Sha256::digest(key).into();
        // Every key is compared, so the time does not tell which one came close.
        let any = self
            .0
            .iter()
            .fold(Choice::from(0), |any, known| any | known.ct_eq(&presented));
        any.into()
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}
