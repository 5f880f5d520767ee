//! What does a client ask of the router itself?
//!
//! Anybody may ask for less time than there is, and nobody for more. Who matters and who pays is taken from trusted peers
//! alone; from others these headers are removed, so that nobody behind us believes them.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::refusal::Refusal;
use super::shown::EXPLAIN;
use crate::config::units;
use crate::queue::Priority;

const MAX_WAIT: HeaderName = HeaderName::from_static("x-paddler-max-wait");
const FIRST_BYTE: HeaderName = HeaderName::from_static("x-paddler-timeout-first-byte");
const IDLE: HeaderName = HeaderName::from_static("x-paddler-timeout-idle");
const WHOLE: HeaderName = HeaderName::from_static("x-paddler-timeout-whole");
const PRIORITY: HeaderName = HeaderName::from_static("x-paddler-priority");
const TENANT: HeaderName = HeaderName::from_static("x-paddler-tenant");

/// The longest name of a tenant, in bytes: it becomes a key of tables.
pub const LONGEST_TENANT: usize = 256;

/// The times that a client asks for; `None`: what there is.
///
/// The headers in which OpenAI's and Anthropic's clients tell their own time limits are not read. `x-stainless-timeout` is in
/// seconds from some and in milliseconds from others, and `x-stainless-read-timeout` is about pauses. Who gives up hangs up,
/// and that is seen at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) max_wait: Option<Duration>,
    pub(super) first_byte: Option<Duration>,
    pub(super) idle: Option<Duration>,
    pub(super) whole: Option<Duration>,
}

/// How all of these begin.
pub(super) const OURS: &str = "x-paddler";

impl Times {
    /// Reads them. A time that cannot be read is refused: whoever sends it counts on it.
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Refusal> {
        Ok(Self {
            max_wait: time(headers, &MAX_WAIT)?,
            first_byte: some_time(headers, &FIRST_BYTE)?,
            idle: some_time(headers, &IDLE)?,
            whole: some_time(headers, &WHOLE)?,
        })
    }
}

/// What a trusted peer says of a request, or somebody with that right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) priority: Option<i32>,
    pub(super) tenant: Option<Arc<str>>,
    /// It is to be told why the request went where it went.
    pub(super) explain: bool,
}

impl Standing {
    /// Reads what a trusted peer says, and removes what any other says. `may_ask`: whoever it is, he may ask for an explanation.
    pub(super) fn take(headers: &mut HeaderMap, trusted: bool, may_ask: bool) -> Result<Self, Refusal> {
        let explain = (trusted || may_ask) && asks(headers)?;
        // It is asked of this router and of none behind it.
        headers.remove(EXPLAIN);
        if !trusted {
            headers.remove(PRIORITY);
            headers.remove(TENANT);
            return Ok(Self {
                explain,
                ..Self::default()
            });
        }
        let priority = text(headers, &PRIORITY)?.map(|text| {
            let form = "write high, standard, sheddable or a whole number";
            Priority::read(text).ok_or_else(|| bad(&PRIORITY, text, form))
        });
        let tenant = text(headers, &TENANT)?.map(|text| {
            let form = format!("write a name of 1 to {LONGEST_TENANT} bytes");
            let fits = (1..=LONGEST_TENANT).contains(&text.len());
            if fits {
                Ok(Arc::from(text))
            } else {
                Err(bad(&TENANT, text, &form))
            }
        });
        Ok(Self {
            priority: priority.transpose()?,
            tenant: tenant.transpose()?,
            explain,
        })
    }
}

/// Whether an explanation is asked for.
fn asks(headers: &HeaderMap) -> Result<bool, Refusal> {
    match text(headers, &EXPLAIN)? {
        None | Some("0") => Ok(false),
        Some("1") => Ok(true),
        Some(other) => Err(bad(&EXPLAIN, other, "write 1")),
    }
}

/// The one value of a header, as text.
fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let show = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    if let Some(second) = values.next() {
        return Err(bad(name, &show(second), "say it once"));
    }
    let text = value
        .to_str()
        .map_err(|_| bad(name, &show(value), "write visible ASCII"))?;
    Ok(Some(text.trim()))
}

/// Seconds, or a number with a unit.
fn time(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Duration>, Refusal> {
    let Some(text) = text(headers, name)? else {
        return Ok(None);
    };
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let read = if plain {
        units::duration(&format!("{text}s"))
    } else {
        units::duration(text)
    };
    match read {
        Ok(time) => Ok(Some(time)),
        Err(_) => Err(bad(
            name,
            text,
            "write seconds (30, 0.5) or a number with a unit (250ms, 10s, 5m, 1h)",
        )),
    }
}

fn some_time(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Duration>, Refusal> {
    match time(headers, name)? {
        Some(Duration::ZERO) => Err(bad(name, "0", "write a time in which something can be done")),
        time => Ok(time),
    }
}

fn bad(name: &HeaderName, value: &str, form: &str) -> Refusal {
    let value: String = value.chars().take(60).collect();
    let message = format!("{name}: {value:?} cannot be read: {form}");
    Refusal::bad_request("bad_header", message).closing()
}

#[cfg(test)]
mod tests;
