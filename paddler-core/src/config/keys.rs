//! How is a file of clients' keys read?
//!
//! As a list with what each may do: [`Keys::read`](crate::forward::Keys::read) shows it.
//!
//! No fault shows a key, nor what stands where one could be; names and numbers are shown.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::fault::{ConfigFaults, Faults};
use super::read::{At, Fields};
use super::suggest;
use super::value::{Kind, Value};
use crate::forward::Client;
use crate::queue::{self, Priority};

/// The hash of a key. Keys themselves are not kept.
pub(crate) type KeyHash = [u8; 32];

pub(crate) fn hash(key: &[u8]) -> KeyHash {
    Sha256::digest(key).into()
}

/// A hash as it is written, in hex digits.
pub(crate) fn parse_hash(text: &str) -> Option<KeyHash> {
    let mut hash = KeyHash::default();
    if text.len() != 2 * hash.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(hash)
}

/// Whether a key can be sent in a header.
pub(crate) fn is_visible(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads the list, from the value of the whole file.
pub(crate) fn clients(value: &Value, name: &str) -> Result<Vec<(KeyHash, Client)>, ConfigFaults> {
    let mut faults = Faults::default();
    let clients = read(value, &mut faults);
    faults.finish(name, clients)
}

fn read(value: &Value, faults: &mut Faults) -> Option<Vec<(KeyHash, Client)>> {
    let root = At::root(value);
    let list = match &value.kind {
        Kind::List(_) => root,
        Kind::Map(_) => {
            let mut fields = root.fields(faults)?;
            let list = fields.need("keys", faults);
            end(&root, &["keys"], faults);
            list?
        }
        _ => {
            root.fault_mend(
                faults,
                "this is not a list of keys",
                "write keys: and the list under it",
            );
            return None;
        }
    };
    let Kind::List(_) = list.value.kind else {
        list.fault(faults, "a list should stand here");
        return None;
    };
    let mut seen = Seen::default();
    let entries = list.some_list(faults)?;
    let clients = entries
        .iter()
        .enumerate()
        .map(|(index, at)| client(at, index, &mut seen, faults));
    // Each one, for its faults.
    let clients: Vec<_> = clients.collect();
    clients.into_iter().collect()
}

/// Which entry had a name or a key first.
#[derive(Default)]
struct Seen {
    names: HashMap<String, usize>,
    hashes: HashMap<KeyHash, usize>,
}

const KNOWN: [&str; 11] = [
    "name",
    "key",
    "sha256",
    "models",
    "requests_per_minute",
    "tokens_per_minute",
    "max_in_flight",
    "priority",
    "tenant",
    "weight",
    "explain",
];

fn client(at: &At<'_>, index: usize, seen: &mut Seen, faults: &mut Faults) -> Option<(KeyHash, Client)> {
    let Kind::Map(_) = at.value.kind else {
        at.fault_mend(
            faults,
            "a key with its name should stand here",
            "write {name: .., key: ..}, or one key a line and nothing else",
        );
        return None;
    };
    let mut fields = at.fields(faults)?;
    let name = fields.need("name", faults).and_then(|at| at.text(faults));
    let hash = secret(&mut fields, at, faults);
    if let (Some(name), Some(first)) = (
        name,
        name.and_then(|name| seen.names.insert(name.to_owned(), index)),
    ) {
        let problem = format!("keys[{first}] has the name {name:?} already");
        at.fault_mend(
            faults,
            problem,
            "give each a name of its own; a common tenant puts them together",
        );
    }
    if let Some(first) = hash.and_then(|hash| seen.hashes.insert(hash, index)) {
        at.fault(faults, format!("keys[{first}] has the same key"));
    }
    let mut client = Client::new(name.unwrap_or_default());
    rights(&mut fields, &mut client, faults);
    end(at, &KNOWN, faults);
    Some((hash?, client))
}

fn secret(fields: &mut Fields<'_>, entry: &At<'_>, faults: &mut Faults) -> Option<KeyHash> {
    let (key, hashed) = (fields.take("key", faults), fields.take("sha256", faults));
    match (key, hashed) {
        (Some(at), None) => {
            let text = unrepeated(&at, faults)?;
            if !is_visible(text) {
                at.fault_mend(
                    faults,
                    "this cannot be sent in a header",
                    "write visible ASCII characters",
                );
                return None;
            }
            Some(hash(text.as_bytes()))
        }
        (None, Some(at)) => {
            let parsed = parse_hash(unrepeated(&at, faults)?);
            if parsed.is_none() {
                at.fault_mend(
                    faults,
                    "this is not a SHA-256",
                    "write the 64 hex digits that `paddler hash-key` prints",
                );
            }
            parsed
        }
        (Some(_), Some(at)) => {
            at.fault_mend(faults, "`key` and `sha256` stand here both", "keep one of them");
            None
        }
        (None, None) => {
            entry.fault(faults, "`key` or `sha256` is missing");
            None
        }
    }
}

/// A text that no fault repeats.
fn unrepeated<'v>(at: &At<'v>, faults: &mut Faults) -> Option<&'v str> {
    match &at.value.kind {
        Kind::String(text) => Some(text),
        Kind::Refused => None,
        _ => {
            at.fault_mend(faults, "text should stand here", "put it in quotes");
            None
        }
    }
}

fn rights(fields: &mut Fields<'_>, client: &mut Client, faults: &mut Faults) {
    let models = fields.take("models", faults);
    if let Some(at) = models.filter(|at| fits(at, "a list", matches!(at.value.kind, Kind::List(_)), faults)) {
        let models = at.some_list(faults).unwrap_or_default();
        client.models = Some(
            models
                .iter()
                .filter_map(|at| at.text(faults).map(Into::into))
                .collect(),
        );
    }
    let mut limit = |name: &'static str, most: i64, faults: &mut Faults| {
        let at = fields.take(name, faults).filter(|at| is_whole(at, faults))?;
        at.whole::<u64>(faults, 1..=most)
    };
    let of_32 = |limit: Option<u64>| limit.and_then(|limit| u32::try_from(limit).ok());
    let most = i64::from(u32::MAX);
    client.requests_per_minute = of_32(limit("requests_per_minute", most, faults));
    client.tokens_per_minute = limit("tokens_per_minute", 1_000_000_000, faults);
    client.max_in_flight = of_32(limit("max_in_flight", most, faults));
    client.weight = of_32(limit("weight", queue::MOST_WEIGHT.into(), faults)).unwrap_or(1);
    if let Some(at) = fields.take("priority", faults) {
        client.priority = priority(&at, faults).unwrap_or_default();
    }
    if let Some(tenant) = fields.take("tenant", faults).and_then(|at| at.text(faults)) {
        client.tenant = tenant.into();
    }
    let explain = fields.take("explain", faults);
    let is_bool = |at: &At<'_>, faults: &mut Faults| {
        matches!(at.value.kind, Kind::Bool(_)) || !fits(at, "true or false", false, faults)
    };
    if let Some(at) = explain.filter(|at| is_bool(at, faults)) {
        client.explain = at.value.kind == Kind::Bool(true);
    }
}

fn is_whole(at: &At<'_>, faults: &mut Faults) -> bool {
    fits(
        at,
        "a whole number",
        matches!(at.value.kind, Kind::Int(_)),
        faults,
    )
}

/// Passes on whether something is of the kind that is wanted; if not, with a fault that does not repeat it.
fn fits(at: &At<'_>, wanted: &str, fits: bool, faults: &mut Faults) -> bool {
    if !fits && at.value.kind != Kind::Refused {
        at.fault(faults, format!("{wanted} should stand here"));
    }
    fits
}

/// A word or a number. What is neither is not shown.
fn priority(at: &At<'_>, faults: &mut Faults) -> Option<i32> {
    let Kind::String(word) = &at.value.kind else {
        return is_whole(at, faults).then(|| at.whole(faults, -1000..=1000))?;
    };
    let read = Priority::ALL.iter().find(|class| class.as_str() == word);
    if read.is_none() {
        at.fault_mend(
            faults,
            "this is not a priority",
            "write high, standard, sheddable or a whole number",
        );
    }
    Priority::read(read?.as_str())
}

/// What nobody knows, without its name: it may be a key whose `key:` was forgotten. The known one that is near enough to have
/// been meant is said.
fn end(at: &At<'_>, known: &[&str], faults: &mut Faults) {
    let Kind::Map(pairs) = &at.value.kind else { return };
    for (key, _) in pairs {
        if !known.contains(&key.text.as_str()) {
            let mend = suggest::mend(&key.text, known);
            faults.add(
                &at.path,
                key.place,
                "something stands here that is not known",
                mend,
            );
        }
    }
}
