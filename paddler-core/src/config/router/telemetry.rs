//! Where is told what becomes of requests, besides the figures that are scraped?

use std::path::PathBuf;
use std::time::Duration;

use super::fill::{HOUR, duration, file};
use crate::config::fault::Faults;
use crate::config::read::{At, Fields};
use crate::config::value::Kind;
use crate::upstream::address;

/// Who is told what becomes of requests. Default: nobody, but who scrapes.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Telemetry {
    /// A line for each request.
    pub access_log: Option<AccessLog>,
    /// Whose answers are read for the tokens that they use.
    pub count_tokens: CountTokens,
    /// Gauges for a StatsD server.
    pub statsd: Option<Statsd>,
    /// Spans for a collector of OpenTelemetry.
    pub otlp: Option<Otlp>,
}

/// A line for each request that has ended: `access_log` in a config.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AccessLog {
    /// Where lines go.
    pub file: LogTarget,
    /// How they look. Default JSON: whatever reads logs reads that.
    pub format: LogFormat,
}

/// Where an access log goes.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum LogTarget {
    /// To the end of this file, which is made if it is not there. As it is written: `paddler` looks for a relative path beside the
    /// config file.
    File(PathBuf),
    /// To standard error, between the lines of the program's log.
    Stderr,
}

/// How a line of an access log looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum LogFormat {
    /// An object of JSON.
    #[default]
    Json,
    /// `key=value`, in quotes where that is needed.
    Text,
}

/// Whose answers are read for the tokens that they use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[non_exhaustive]
pub enum CountTokens {
    /// Those that somebody is charged for: who has waited in the queue, and whose key has tokens a minute. The default: to read
    /// an answer is to look at each byte of it.
    #[default]
    Charged,
    /// All. Upstreams are asked not to compress them.
    Always,
}

/// Gauges for a StatsD server, over UDP: the three that Paddler 1.x sends.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Statsd {
    /// Where it listens: a host and a port. A name is looked up each time.
    pub address: String,
    /// What stands before each name, with a dot. Default `paddler`.
    pub prefix: String,
    /// How often they are sent, 100 ms to 1 h. Default 10 s, as StatsD servers pass them on.
    pub interval: Duration,
}

impl Statsd {
    /// To this address, with defaults for the rest.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            prefix: "paddler".into(),
            interval: Duration::from_secs(10),
        }
    }
}

/// Spans for a collector of OpenTelemetry, by OTLP over HTTP with JSON.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Otlp {
    /// Where it listens, such as `http://collector:4318`; spans go to `/v1/traces` below that.
    pub endpoint: String,
    /// A file with headers that it wants, `name: value` a line: what is in there may be secret. Default `None`. As it is written:
    /// `paddler` looks for a relative path beside the config file.
    pub headers_file: Option<PathBuf>,
    /// The share of requests that become a trace, 0 to 1, of those that come without one; of all others the caller has said it.
    /// Default 1.
    pub sample: f64,
}

impl Otlp {
    /// To this endpoint, with defaults for the rest.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            headers_file: None,
            sample: 1.0,
        }
    }

    /// Scheme, host and port, and the path below which its paths are, without a slash at its end.
    pub(crate) fn split(&self) -> (&str, &str) {
        let host = self.endpoint.find("://").map_or(0, |at| at + 3);
        let path = self.endpoint[host..].find('/');
        let (origin, path) = self
            .endpoint
            .split_at(path.map_or(self.endpoint.len(), |at| host + at));
        (origin, path.trim_end_matches('/'))
    }
}

/// Whether it is the word off, and what stands there is to be left alone.
fn is_off(at: &At<'_>, faults: &mut Faults) -> bool {
    at.takes_word(faults, "off");
    matches!(&at.value.kind, Kind::String(word) if word == "off")
}

/// All that is said of telemetry, over what was said before.
pub(super) fn telemetry(fields: &mut Fields<'_>, into: &mut Telemetry, faults: &mut Faults) {
    if let Some(at) = fields.take("access_log", faults) {
        into.access_log = if is_off(&at, faults) {
            None
        } else {
            access_log(&at, faults)
        };
    }
    if let Some(at) = fields.take("count_tokens", faults) {
        let words = [("charged", CountTokens::Charged), ("always", CountTokens::Always)];
        into.count_tokens = at.word(faults, &words).unwrap_or_default();
    }
    if let Some(at) = fields.take("statsd", faults) {
        into.statsd = if is_off(&at, faults) {
            None
        } else {
            statsd(&at, into.statsd.take(), faults)
        };
    }
    if let Some(at) = fields.take("otlp", faults) {
        into.otlp = if is_off(&at, faults) {
            None
        } else {
            otlp(&at, faults)
        };
    }
}

fn access_log(at: &At<'_>, faults: &mut Faults) -> Option<AccessLog> {
    let mut fields = at.fields(faults)?;
    let file = fields.need("file", faults);
    let file = file.and_then(|at| at.text(faults)).map(|text| match text {
        "stderr" => Some(LogTarget::Stderr),
        "off" => None,
        path => Some(LogTarget::File(path.into())),
    });
    let words = [("json", LogFormat::Json), ("text", LogFormat::Text)];
    let format = fields.take("format", faults);
    let format = format.and_then(|at| at.word(faults, &words)).unwrap_or_default();
    fields.end(faults);
    Some(AccessLog { file: file??, format })
}

fn statsd(at: &At<'_>, before: Option<Statsd>, faults: &mut Faults) -> Option<Statsd> {
    let mut fields = at.fields(faults)?;
    // Flags may say the rest of what a file says.
    let address = match &before {
        Some(_) => fields.take("address", faults),
        None => fields.need("address", faults),
    };
    let address = address.and_then(|at| host_and_port(&at, faults));
    let mut statsd = before.unwrap_or_else(|| Statsd::new(""));
    statsd.address = address.unwrap_or(statsd.address);
    if let Some(at) = fields.take("prefix", faults)
        && let Some(text) = at.text(faults)
    {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if text.len() > 128 || !text.chars().all(plain) || text.ends_with('.') {
            let mend =
                "write up to 128 letters, digits, dots, - and _; the dot before each name is put there";
            at.fault_mend(faults, "this cannot stand before a name of StatsD", mend);
        }
        statsd.prefix = text.to_owned();
    }
    let bounds = (Duration::from_millis(100), HOUR);
    duration(&mut fields, "interval", bounds, &mut statsd.interval, faults);
    fields.end(faults);
    Some(statsd).filter(|statsd| !statsd.address.is_empty())
}

fn otlp(at: &At<'_>, faults: &mut Faults) -> Option<Otlp> {
    let mut fields = at.fields(faults)?;
    let endpoint = fields.need("endpoint", faults).and_then(|at| {
        let otlp = Otlp::new(at.text(faults)?);
        let (origin, path) = otlp.split();
        let parsed = address::parse(origin).map(drop);
        let parsed = parsed.map_err(|error| (error.problem, error.mend.to_owned()));
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"?#".contains(&byte);
        let parsed = if path.bytes().all(plain) {
            parsed
        } else {
            let mend = "leave out ? and #, and what has to be encoded".to_owned();
            parsed.and(Err(("this path cannot be asked for".to_owned(), mend)))
        };
        at.parsed(faults, parsed.map(|()| otlp))
    });
    let headers_file = file(&mut fields, "headers_file", faults);
    let sample = fields.take("sample", faults);
    let sample = sample.and_then(|at| at.share(faults, 0.0..=1.0));
    fields.end(faults);
    let otlp = endpoint?;
    Some(Otlp {
        headers_file,
        sample: sample.unwrap_or(otlp.sample),
        ..otlp
    })
}

/// A name or an address, and a port.
fn host_and_port(at: &At<'_>, faults: &mut Faults) -> Option<String> {
    let text = at.text(faults)?;
    let good = text.rsplit_once(':').is_some_and(|(host, port)| {
        let bare = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
        let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
        bare && is_port && !host.is_empty() && host.bytes().all(plain)
    });
    if !good {
        let mend = "write a host and a port, such as 127.0.0.1:8125 or statsd:8125 (IPv6: \"[::1]:8125\")";
        at.fault_mend(faults, "this is no host with a port", mend);
        return None;
    }
    Some(text.to_owned())
}
