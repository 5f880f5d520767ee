//! How is each setting read over its default?

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::models::Rules;
use super::{
    AdminPaths, Config, Forwarded, Forwarding, NameUpstream, Poll, Shutdown, Traceparent, UpstreamConfig,
    WebSockets, agents, decisions, health, limits, queue, telemetry, timeouts, tls, upstream,
};
use crate::config::fault::Faults;
use crate::config::network::Network;
use crate::config::read::{At, Fields};
use crate::config::registry::Registry;
use crate::config::tree;
use crate::config::units::{show_bytes, show_duration};
use crate::config::value::{Kind, Value, quoted};
use crate::schedule::{Tree, trees};

pub(super) const MOMENT: Duration = Duration::from_millis(10);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);

pub(super) const KIB: u64 = 1 << 10;
pub(super) const TIB: u64 = 1 << 40;

/// Reads the whole file. A setting that is faulty keeps its default, and the faults say that nothing is to be built.
pub(in crate::config) fn config(
    value: &Value,
    mut config: Config,
    registry: &Registry,
    faults: &mut Faults,
) -> Option<Config> {
    if value.kind == Kind::Null {
        return Some(config);
    }
    let mut fields = At::root(value).fields(faults)?;
    let interval_before = config.poll.interval;
    listeners(&mut fields, &mut config, faults);
    if let Some(at) = fields.take("upstreams", faults) {
        config.upstreams = upstream::upstreams(&at, faults);
    }
    if let Some(list) = file(&mut fields, "upstreams_file", faults) {
        config.upstreams_file = Some(list);
    }
    let mut rules = Rules::default();
    if let Some(at) = fields.take("models", faults) {
        rules.models(&at, faults);
    }
    if let Some(tree) = tree::tree(&mut fields, registry, faults) {
        config.tree = tree;
    }
    section(&mut fields, "queue", faults, |fields, faults| {
        queue::queue(fields, &mut config.queue, faults);
    });
    if let Some(at) = fields.take("limits", faults) {
        limits::limits(&at, &mut config.limits, faults);
    }
    names_and_peers(&mut fields, &mut config, faults);
    section(&mut fields, "forwarding", faults, |fields, faults| {
        forwarding(fields, &mut config.forwarding, faults);
    });
    section(&mut fields, "timeouts", faults, |fields, faults| {
        timeouts::timeouts(fields, &mut config.timeouts, &mut rules, faults);
    });
    config.models = rules.build(config.models, faults);
    section(&mut fields, "poll", faults, |fields, faults| {
        poll(fields, &mut config.poll, faults);
    });
    section(&mut fields, "health", faults, |fields, faults| {
        health::health(fields, &mut config.health, faults);
    });
    section(&mut fields, "retry", faults, |fields, faults| {
        health::retry(fields, &mut config.retry, faults);
    });
    access(&mut fields, &mut config, faults);
    if let Some(at) = fields.take("tls", faults) {
        config.tls = tls::listener_tls(&at, faults);
    }
    section(&mut fields, "decisions", faults, |fields, faults| {
        decisions::decisions(fields, &mut config.decisions, faults);
    });
    telemetry::telemetry(&mut fields, &mut config.telemetry, faults);
    section(&mut fields, "shutdown", faults, |fields, faults| {
        shutdown(fields, &mut config.shutdown, faults);
    });
    poll_outlasts_connecting(&At::root(value), &config, faults);
    fields.end(faults);
    config.tree = fitting(config.tree, interval_before, config.poll.interval);
    Some(config)
}

/// Who has to show a key, and which ways are open.
fn access(fields: &mut Fields<'_>, config: &mut Config, faults: &mut Faults) {
    if let Some(keys) = file(fields, "api_key_file", faults) {
        config.api_key_file = Some(keys);
    }
    if let Some(keys) = file(fields, "management_key_file", faults) {
        config.management_key_file = Some(keys);
    }
    if let Some(at) = fields.take("management_origins", faults) {
        let origins = at.list(faults).unwrap_or_default();
        config.management_origins = origins.iter().filter_map(|at| origin(at, faults)).collect();
    }
    section(fields, "agents", faults, |fields, faults| {
        agents::agents(fields, &mut config.agents, faults);
    });
    if let Some(at) = fields.take("admin_paths", faults) {
        let words = [("closed", AdminPaths::Closed), ("open", AdminPaths::Open)];
        config.admin_paths = at.word(faults, &words).unwrap_or_default();
    }
    if let Some(at) = fields.take("websockets", faults) {
        let words = [("closed", WebSockets::Closed), ("open", WebSockets::Open)];
        config.websockets = at.word(faults, &words).unwrap_or_default();
    }
}

/// The origin of web pages, as browsers write it.
fn origin(at: &At<'_>, faults: &mut Faults) -> Option<String> {
    let text = at.text(faults)?;
    let rest = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let is_one = rest.is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !b"/?#@*".contains(&byte))
    });
    if !is_one {
        let problem = format!("{} is not the origin of a web page", quoted(text));
        at.fault_mend(
            faults,
            problem,
            "write https://host, with its port if it has one, and nothing after that",
        );
        return None;
    }
    Some(text.to_ascii_lowercase())
}

/// A built-in tree goes by reports of the last ten polls, so it follows the interval. Any other tree stays as it is.
fn fitting(tree: Tree, before: Duration, interval: Duration) -> Tree {
    let fresh_for = |interval: Duration| trees::FRESH_FOR.max(interval.saturating_mul(10));
    let written = tree.to_string();
    for build in [trees::gateway_with, trees::balancer_with] {
        if written == build(fresh_for(before)).to_string() {
            return build(fresh_for(interval));
        }
    }
    tree
}

/// A poll has to see that no connection comes about, at each upstream.
fn poll_outlasts_connecting(at: &At<'_>, config: &Config, faults: &mut Faults) {
    let mend = "make `poll.timeout` longer";
    if config.poll.timeout <= config.timeouts.connect {
        let problem =
            "`poll.timeout` is not longer than `timeouts.connect`: a machine that is gone would look busy";
        at.fault_mend(faults, problem, mend);
    }
    for UpstreamConfig { spec, .. } in &config.upstreams {
        if spec
            .timeouts
            .connect
            .is_some_and(|connect| config.poll.timeout <= connect)
        {
            let problem = format!(
                "`poll.timeout` is not longer than `timeouts.connect` of the upstream {}: it would look busy when it is gone",
                spec.id
            );
            at.fault_mend(faults, problem, mend);
        }
    }
}

fn names_and_peers(fields: &mut Fields<'_>, config: &mut Config, faults: &mut Faults) {
    if let Some(at) = fields.take("server_names", faults) {
        let names = at.list(faults).unwrap_or_default();
        config.server_names = names
            .iter()
            .filter_map(|at| at.text(faults).map(str::to_owned))
            .collect();
    }
    if let Some(at) = fields.take("trusted_peers", faults) {
        let peers = at.list(faults).unwrap_or_default();
        config.trusted_peers = peers.iter().filter_map(|at| network(at, faults)).collect();
    }
}

fn network(at: &At<'_>, faults: &mut Faults) -> Option<Network> {
    let parsed = at.text(faults)?.parse::<Network>();
    at.parsed(faults, parsed.map_err(|invalid| (invalid.problem, invalid.mend)))
}

fn forwarding(fields: &mut Fields<'_>, forwarding: &mut Forwarding, faults: &mut Faults) {
    if let Some(at) = fields.take("forwarded", faults) {
        let words = [
            ("off", Forwarded::Off),
            ("x-forwarded", Forwarded::XForwarded),
            ("forwarded", Forwarded::Forwarded),
            ("both", Forwarded::Both),
        ];
        forwarding.forwarded = at.word(faults, &words).unwrap_or_default();
    }
    if let Some(at) = fields.take("traceparent", faults) {
        let words = [("pass", Traceparent::Pass), ("make", Traceparent::Make)];
        forwarding.traceparent = at.word(faults, &words).unwrap_or_default();
    }
    if let Some(at) = fields.take("name_upstream", faults) {
        let words = [
            ("on_demand", NameUpstream::OnDemand),
            ("always", NameUpstream::Always),
        ];
        forwarding.name_upstream = at.word(faults, &words).unwrap_or_default();
    }
}

/// A map under a key, if it is there.
pub(super) fn section<'v>(
    fields: &mut Fields<'v>,
    name: &'static str,
    faults: &mut Faults,
    read: impl FnOnce(&mut Fields<'v>, &mut Faults),
) {
    let inner = fields.take(name, faults).and_then(|at| at.fields(faults));
    if let Some(mut inner) = inner {
        read(&mut inner, faults);
        inner.end(faults);
    }
}

fn listeners(fields: &mut Fields<'_>, config: &mut Config, faults: &mut Faults) {
    let listen = fields.take("listen", faults);
    if let Some(at) = &listen {
        at.defaults_to(faults, || config.listen.to_string().into());
        config.listen = address(at, faults).unwrap_or(config.listen);
    }
    let management = fields.take("management", faults);
    if let Some(at) = &management {
        at.takes_word(faults, "off");
        at.defaults_to(faults, || {
            config.management.map(|address| address.to_string()).into()
        });
        match &at.value.kind {
            Kind::String(off) if off == "off" => config.management = None,
            Kind::Bool(false) => {
                at.fault_mend(
                    faults,
                    "an address or off should stand here, not false",
                    "write off",
                );
            }
            _ => config.management = address(at, faults).or(config.management),
        }
    }
    // Port 0 is a free one, another each time.
    let same = config.management == Some(config.listen) && config.listen.port() != 0;
    if let (true, Some(at)) = (same, management.or(listen)) {
        at.fault_mend(
            faults,
            "`listen` and `management` are the same address",
            "give one of them another port, or turn `management` off",
        );
    }
}

fn address(at: &At<'_>, faults: &mut Faults) -> Option<SocketAddr> {
    at.takes(faults, || {
        let what = "An address with a port, such as 127.0.0.1:8080 or \"[::1]:8080\".";
        json!({"type": "string", "pattern": ":[0-9]+$", "description": what})
    });
    if let Kind::Int(port @ 0..=65535) = at.value.kind {
        let mend = format!("write 127.0.0.1:{port}, or 0.0.0.0:{port} for every network");
        at.fault_mend(faults, format!("{port} is a port without an address"), mend);
        return None;
    }
    let Kind::String(text) = &at.value.kind else {
        return at.wrong(faults, "an address such as 127.0.0.1:8080");
    };
    let parsed = text.parse().map_err(|_| {
        let problem = format!("{} is not an address with a port", quoted(text));
        let mend = "write 127.0.0.1:8080 (names are not looked up; IPv6 goes into quotes: \"[::1]:8080\")";
        (problem, mend.into())
    });
    at.parsed(faults, parsed)
}

/// The path of a file. Whether it is there is seen when it is read.
pub(super) fn file(fields: &mut Fields<'_>, name: &'static str, faults: &mut Faults) -> Option<PathBuf> {
    let at = fields.take(name, faults)?;
    at.text(faults).map(PathBuf::from)
}

/// A time of a step, if it is there.
pub(super) fn step(fields: &mut Fields<'_>, name: &'static str, faults: &mut Faults) -> Option<Duration> {
    fields.take(name, faults)?.duration(faults, MOMENT..=DAY)
}

/// Reads a time into its place, if it is there.
pub(super) fn duration(
    fields: &mut Fields<'_>,
    name: &'static str,
    (least, most): (Duration, Duration),
    into: &mut Duration,
    faults: &mut Faults,
) {
    let read = fields.take(name, faults).and_then(|at| {
        at.defaults_to(faults, || show_duration(*into).into());
        at.duration(faults, least..=most)
    });
    *into = read.unwrap_or(*into);
}

pub(super) fn count(
    fields: &mut Fields<'_>,
    name: &'static str,
    (least, most): (i64, i64),
    into: &mut usize,
    faults: &mut Faults,
) {
    let read = fields.take(name, faults).and_then(|at| {
        at.defaults_to(faults, || (*into).into());
        at.whole(faults, least..=most)
    });
    *into = read.unwrap_or(*into);
}

pub(super) fn bytes(
    fields: &mut Fields<'_>,
    name: &'static str,
    (least, most): (u64, u64),
    into: &mut u64,
    faults: &mut Faults,
) {
    let read = fields.take(name, faults).and_then(|at| {
        at.defaults_to(faults, || show_bytes(*into).into());
        at.bytes(faults, least..=most)
    });
    *into = read.unwrap_or(*into);
}

fn poll(fields: &mut Fields<'_>, poll: &mut Poll, faults: &mut Faults) {
    duration(fields, "interval", (MOMENT, HOUR), &mut poll.interval, faults);
    duration(fields, "timeout", (MOMENT, HOUR), &mut poll.timeout, faults);
    count(fields, "concurrency", (1, 10_000), &mut poll.concurrency, faults);
}

fn shutdown(fields: &mut Fields<'_>, shutdown: &mut Shutdown, faults: &mut Faults) {
    duration(
        fields,
        "settle",
        (Duration::ZERO, HOUR),
        &mut shutdown.settle,
        faults,
    );
    duration(
        fields,
        "grace",
        (Duration::ZERO, DAY),
        &mut shutdown.grace,
        faults,
    );
}
