//! Which keys may clients present?

use std::fmt;
use std::sync::Arc;

use subtle::{ConditionallySelectable as _, ConstantTimeEq as _};

use super::rights::{Authorise, Client};
use crate::config::keys::{self, KeyHash};
use crate::config::{ConfigFaults, Value};

/// Keys that clients may present, and whose they are. Only their hashes are held, and comparing takes the same time for every
/// wrong key.
#[derive(Clone)]
pub struct Keys {
    hashes: Vec<KeyHash>,
    clients: Vec<Arc<Client>>,
}

/// Why a text holds no keys. It shows none of what the text holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidKeys {
    /// There is none: a door that nobody can open is a mistake.
    None,
    /// A key has characters that no client can send in a header.
    NotVisible {
        /// The line, from 1.
        line: usize,
    },
    /// There is more in a line than a key.
    Spaces {
        /// The line, from 1.
        line: usize,
    },
    /// What begins like a hash is none.
    NotHash {
        /// The line, from 1.
        line: usize,
    },
    /// A list, where keys have no rights of their own.
    List,
    /// The list has faults.
    Faults(ConfigFaults),
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
            Self::Spaces { line } => write!(
                f,
                "line {line} has a space in it: write one key a line and nothing else; for names and limits begin with \
                 \"keys:\""
            ),
            Self::NotHash { line } => write!(
                f,
                "line {line} begins with sha256: and is not a hash: write 64 hex digits after it"
            ),
            Self::List => f.write_str("these keys have no rights of their own: write one key a line, not a list"),
            Self::Faults(faults) => faults.fmt(f),
        }
    }
}

impl std::error::Error for InvalidKeys {}

/// What a line with a hash in the place of a key begins with.
const HASHED: &str = "sha256:";

impl Keys {
    /// Reads a file of keys: one key a line, or (feature `yaml`) a list, with what each may do.
    ///
    /// In lines, empty ones and those that begin with `#` do not count, `sha256:` and 64 hex digits stand for a key by its
    /// hash, and everybody may do everything. A list:
    ///
    /// ```yaml
    /// keys:
    ///   - name: team-a                  # in messages and in the log; must be there
    ///     key: sk-1                     # or sha256: and 64 hex digits, which `paddler hash-key` prints
    ///     models: [llama-3]             # default: all; an alias counts as its model, an adapter as its base
    ///     requests_per_minute: 600      # default: any number, of these three
    ///     tokens_per_minute: 100000     # of prompts and answers together, where an engine worked on them
    ///     max_in_flight: 8              # those that wait among them
    ///     priority: 0                   # high, standard, sheddable or a number; below 0: may be shed
    ///     tenant: team-a                # who pays; default: the name
    ///     weight: 1                     # the tenant's share of a full pool, against others'
    /// ```
    ///
    /// ```
    /// use paddler_core::forward::{Authorise, Keys};
    ///
    /// let keys = Keys::read("# team a\nsk-1\n\nsk-2\n")?;
    /// assert_eq!(&*keys.client(b"sk-1").unwrap().name, "key-1");
    /// assert!(keys.client(b"sk-3").is_none() && keys.client(b"").is_none());
    /// assert!(Keys::read("# none\n").is_err());
    /// # Ok::<(), paddler_core::forward::InvalidKeys>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidKeys`] when there is none, or one that nobody can send, or a list with faults.
    pub fn read(text: &str) -> Result<Self, InvalidKeys> {
        Self::read_named(text, "")
    }

    /// The same, with the name of the file for the faults of a list.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_named(text: &str, name: &str) -> Result<Self, InvalidKeys> {
        let text = without_mark(text);
        match list(text, name) {
            Some(value) => Self::from_value(&value?, name),
            None => lines(text).map(Self::of),
        }
    }

    /// Reads a list of keys with their rights from a value, such as one made of JSON. `name` says where it comes from, for the
    /// faults.
    ///
    /// # Errors
    /// [`InvalidKeys::Faults`], every one at once; none shows a key.
    pub fn from_value(value: &Value, name: &str) -> Result<Self, InvalidKeys> {
        let clients = keys::clients(value, name).map_err(InvalidKeys::Faults)?;
        Ok(Self::of(clients))
    }

    /// Reads keys that have no rights of their own: one a line, as for [`read`](Self::read), and no list.
    ///
    /// ```
    /// use paddler_core::forward::{InvalidKeys, Keys};
    ///
    /// assert!(Keys::read_lines("sk-1\n").unwrap().has(b"sk-1"));
    /// assert_eq!(Keys::read_lines("keys: [{name: a, key: sk-1}]").unwrap_err(), InvalidKeys::List);
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read), and for a list.
    pub fn read_lines(text: &str) -> Result<Self, InvalidKeys> {
        let text = without_mark(text);
        if Self::is_list(text) {
            return Err(InvalidKeys::List);
        }
        lines(text).map(Self::of)
    }

    /// Whether a text is a list, and no lines: by how its first line begins that counts.
    ///
    /// ```
    /// use paddler_core::forward::Keys;
    ///
    /// assert!(Keys::is_list("# ours\n- {name: a, key: sk-1}\n") && !Keys::is_list("sk-1\n"));
    /// ```
    pub fn is_list(text: &str) -> bool {
        // No key begins so: what can be sent has no space in it, and the word alone would be a poor key.
        counting(without_mark(text)).next().is_some_and(|(_, first)| {
            first == "---"
                || first == "-"
                || ["keys:", "- ", "{", "["]
                    .iter()
                    .any(|begins| first.starts_with(begins))
        })
    }

    fn of(clients: impl IntoIterator<Item = (KeyHash, Client)>) -> Self {
        let (hashes, clients) = clients
            .into_iter()
            .map(|(hash, client)| (hash, Arc::new(client)))
            .unzip();
        Self { hashes, clients }
    }

    /// Goes on with what was used of the allowances before, by key: for keys that are read again.
    #[must_use]
    pub fn continuing(mut self, before: &Self) -> Self {
        let used: std::collections::HashMap<_, _> = before.hashes.iter().zip(&before.clients).collect();
        for (hash, client) in self.hashes.iter().zip(&mut self.clients) {
            if let Some(before) = used.get(hash) {
                *client = Arc::new(Client::clone(client).continuing(before));
            }
        }
        self
    }

    /// The hash of a key, as it may stand in a file in the key's place; `None` for what cannot be sent in a header.
    ///
    /// ```
    /// use paddler_core::forward::Keys;
    ///
    /// let hash = Keys::hash("sk-1").unwrap();
    /// assert!(Keys::read(&hash).unwrap().has(b"sk-1"));
    /// assert!(Keys::hash("two words").is_none());
    /// ```
    pub fn hash(key: &str) -> Option<String> {
        let digits = |hash: KeyHash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        keys::is_visible(key).then(|| format!("{HASHED} {}", digits(keys::hash(key.as_bytes()))))
    }

    /// Whether this is one of them.
    pub fn has(&self, key: &[u8]) -> bool {
        self.client(key).is_some()
    }
}

impl Authorise for Keys {
    fn client(&self, key: &[u8]) -> Option<Arc<Client>> {
        let presented = keys::hash(key);
        // Every key is compared, so the time does not tell which one came close, nor where it stands.
        let (mut found, mut index) = (0u8, 0u32);
        for (at, known) in (0u32..).zip(&self.hashes) {
            let same = known.ct_eq(&presented);
            index.conditional_assign(&at, same);
            found |= same.unwrap_u8();
        }
        if found == 0 {
            None
        } else {
            self.clients.get(index as usize).cloned()
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.hashes.len())
    }
}

/// The lines that count, with their numbers.
fn counting(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = (1..).zip(text.lines().map(str::trim));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Some editors put a mark before the first line.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// The list that a text is, if it is one. `name`: for its faults.
#[cfg(feature = "yaml")]
fn list(text: &str, name: &str) -> Option<Result<Value, InvalidKeys>> {
    Keys::is_list(text).then(|| Value::from_yaml(text, name).map_err(by_place))
}

/// No list can be read.
#[cfg(not(feature = "yaml"))]
fn list(_: &str, _: &str) -> Option<Result<Value, InvalidKeys>> {
    None
}

/// Faults of the text itself, without their paths: these may go through a key that stands in a wrong place.
#[cfg(feature = "yaml")]
fn by_place(mut faults: ConfigFaults) -> InvalidKeys {
    for fault in &mut faults.faults {
        fault.path.clear();
    }
    InvalidKeys::Faults(faults)
}

fn lines(text: &str) -> Result<Vec<(KeyHash, Client)>, InvalidKeys> {
    let mut clients: Vec<(KeyHash, Client)> = Vec::new();
    for (line, key) in counting(text) {
        let hash = match key.strip_prefix(HASHED) {
            Some(hash) => keys::parse_hash(hash.trim()).ok_or(InvalidKeys::NotHash { line })?,
            None if keys::is_visible(key) => keys::hash(key.as_bytes()),
            // A mapping that begins with a word of its own is no list either.
            None if key.contains(char::is_whitespace) => return Err(InvalidKeys::Spaces { line }),
            None => return Err(InvalidKeys::NotVisible { line }),
        };
        if clients.iter().all(|(known, _)| *known != hash) {
            clients.push((hash, Client::new(format!("key-{}", clients.len() + 1))));
        }
    }
    if clients.is_empty() {
        Err(InvalidKeys::None)
    } else {
        Ok(clients)
    }
}

#[cfg(test)]
mod tests;
