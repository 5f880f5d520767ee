//! What is in force, in the words of a config file?
//!
//! The way back from settings to what is written. Secrets are in files, of which only the paths are known here.

use std::time::Duration;

use serde_json::{Map, Value as Json, json};

use super::upstream::{DNS, ENGINES, HOSTS, HTTP2};
use super::{
    AdminPaths, AgentAccess, ClientCertificates, Config, CountTokens, Forwarded, ListenerTls, LogFormat,
    LogTarget, NameUpstream, Otlp, Queue, Telemetry, Timeouts, Traceparent, UpstreamConfig, WebSockets,
};
use crate::config::units::{show_bytes, show_duration};
use crate::request::{ModelRule, ModelRules, ModelSettings};
use crate::upstream::{Abilities, ModelEntry, Models, Tls};

impl Config {
    /// All settings but the tree, in the words of a config file: read again they are the same. Keys are not in it, only the
    /// files that hold them. Settings that are off by being left out are left out.
    ///
    /// ```
    /// use paddler_core::config::Config;
    ///
    /// let told = Config::default().to_json();
    /// assert_eq!(told["queue"]["max_wait"], "10s");
    /// assert_eq!(told["limits"]["body"], "64MiB");
    /// ```
    pub fn to_json(&self) -> Json {
        let Self {
            listen,
            management,
            upstreams,
            upstreams_file,
            tree: _,
            models,
            queue,
            limits,
            timeouts,
            poll,
            health,
            retry,
            api_key_file,
            management_key_file,
            management_origins,
            agents,
            admin_paths,
            websockets,
            tls,
            server_names,
            trusted_peers,
            forwarding,
            decisions,
            telemetry,
            shutdown,
        } = self;
        let management = management.map_or("off".to_owned(), |address| address.to_string());
        let peers: Vec<_> = trusted_peers.iter().map(ToString::to_string).collect();
        let mut told = json!({
            "listen": listen.to_string(),
            "management": management,
            "upstreams": upstreams.iter().map(upstream).collect::<Vec<_>>(),
            "upstreams_file": upstreams_file,
            "models": rules(models),
            "queue": self::queue(queue),
            "limits": {
                "body": show_bytes(limits.body),
                "buffered_bodies": show_bytes(limits.buffered_bodies),
                "headers": show_bytes(limits.headers),
                "connections": limits.connections,
                "streams": limits.streams,
                "header_timeout": show_duration(limits.header_timeout),
                "body_idle": show_duration(limits.body_idle),
            },
            "timeouts": self::timeouts(timeouts),
            "poll": {
                "interval": show_duration(poll.interval),
                "timeout": show_duration(poll.timeout),
                "concurrency": poll.concurrency,
            },
            "health": {
                "eject_after": health.eject_after,
                "eject_time": show_duration(health.eject_time),
                "unreachable_time": show_duration(health.unreachable_time),
                "longest_time": show_duration(health.longest_time),
                "largest_share": health.largest_share,
                "interval": show_duration(health.interval),
                "slow_start": show_duration(health.slow_start),
            },
            "retry": {"attempts": retry.attempts, "share": retry.share, "per_second": retry.per_second},
            "api_key_file": api_key_file,
            "management_key_file": management_key_file,
            "management_origins": management_origins,
            "agents": without_nothing(json!({
                "access": match agents.access {
                    AgentAccess::Auto => "auto",
                    AgentAccess::Open => "open",
                    AgentAccess::Off => "off",
                },
                "key_file": agents.key_file,
            })),
            "admin_paths": match admin_paths {
                AdminPaths::Closed => "closed",
                AdminPaths::Open => "open",
            },
            "websockets": match websockets {
                WebSockets::Closed => "closed",
                WebSockets::Open => "open",
            },
            "tls": tls.as_ref().map(listener_tls),
            "server_names": server_names,
            "trusted_peers": peers,
            "forwarding": {
                "forwarded": match forwarding.forwarded {
                    Forwarded::Off => "off",
                    Forwarded::XForwarded => "x-forwarded",
                    Forwarded::Forwarded => "forwarded",
                    Forwarded::Both => "both",
                },
                "traceparent": match forwarding.traceparent {
                    Traceparent::Pass => "pass",
                    Traceparent::Make => "make",
                },
                "name_upstream": match forwarding.name_upstream {
                    NameUpstream::OnDemand => "on_demand",
                    NameUpstream::Always => "always",
                },
            },
            "decisions": without_nothing(json!({
                "keep": decisions.keep,
                "per_second": decisions.per_second,
                "log": decisions.log,
                "log_size": show_bytes(decisions.log_size),
            })),
            "shutdown": {"settle": show_duration(shutdown.settle), "grace": show_duration(shutdown.grace)},
        });
        told_telemetry(telemetry, &mut told);
        without_nothing(told)
    }
}

/// Its settings stand at the top.
fn told_telemetry(telemetry: &Telemetry, told: &mut Json) {
    let Telemetry {
        access_log,
        count_tokens,
        statsd,
        otlp,
    } = telemetry;
    told["access_log"] = json!(access_log.as_ref().map(|log| {
        let file = match &log.file {
            LogTarget::File(path) => json!(path),
            LogTarget::Stderr => json!("stderr"),
        };
        let format = match log.format {
            LogFormat::Json => "json",
            LogFormat::Text => "text",
        };
        json!({"file": file, "format": format})
    }));
    told["count_tokens"] = json!(match count_tokens {
        CountTokens::Charged => "charged",
        CountTokens::Always => "always",
    });
    told["statsd"] = json!(statsd.as_ref().map(|statsd| {
        let interval = show_duration(statsd.interval);
        json!({"address": statsd.address, "prefix": statsd.prefix, "interval": interval})
    }));
    told["otlp"] = json!(otlp.as_ref().map(|otlp| {
        let Otlp {
            endpoint,
            headers_file,
            sample,
        } = otlp;
        without_nothing(json!({"endpoint": endpoint, "headers_file": headers_file, "sample": sample}))
    }));
}

/// Without keys that say nothing, at the top of a map.
fn without_nothing(mut map: Json) -> Json {
    if let Json::Object(pairs) = &mut map {
        pairs.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
    }
    map
}

fn queue(queue: &Queue) -> Json {
    let percent = |share: u32| format!("{share}%");
    json!({
        "max_requests": queue.max_requests,
        "max_wait": show_duration(queue.max_wait),
        "max_wait_starting": show_duration(queue.max_wait_starting),
        "min_shares": {
            "standard": percent(queue.min_shares.standard()),
            "sheddable": percent(queue.min_shares.sheddable()),
        },
    })
}

fn some(duration: Option<Duration>) -> Option<String> {
    duration.map(show_duration)
}

fn timeouts(timeouts: &Timeouts) -> Json {
    json!({
        "connect": show_duration(timeouts.connect),
        "first_byte": show_duration(timeouts.first_byte),
        "idle": show_duration(timeouts.idle),
        "whole": some(timeouts.whole).unwrap_or_else(|| "off".to_owned()),
        "client_idle": show_duration(timeouts.client_idle),
        "tunnel_idle": show_duration(timeouts.tunnel_idle),
    })
}

/// What names stand for, and what is special about each.
fn rules(rules: &ModelRules) -> Map<String, Json> {
    let targets = |rule: &ModelRule| -> Vec<_> {
        let each = rule.targets.iter();
        each.map(|target| json!({"model": target.model, "weight": target.weight}))
            .collect()
    };
    let told = |rule: &ModelRule| {
        let ModelSettings {
            priority,
            max_wait,
            rewrite_response,
            timeouts,
        } = rule.settings;
        without_nothing(json!({
            "targets": Some(targets(rule)).filter(|targets| !targets.is_empty()),
            "priority": priority,
            "max_wait": some(max_wait),
            "rewrite_response": rewrite_response,
            "timeouts": without_nothing(json!({
                "first_byte": some(timeouts.first_byte), "idle": some(timeouts.idle), "whole": some(timeouts.whole),
            })),
        }))
    };
    rules
        .iter()
        .map(|(name, rule)| (name.into_owned(), told(rule)))
        .collect()
}

fn upstream(upstream: &UpstreamConfig) -> Json {
    let UpstreamConfig {
        spec,
        api_key_file,
        dns,
        number: _,
    } = upstream;
    let (scheme, id) = if *dns { (DNS, None) } else { ("", Some(&spec.id)) };
    let protocol = &spec.protocol;
    without_nothing(json!({
        "id": id,
        "url": format!("{scheme}{}", spec.url),
        "engine": word(&ENGINES, &spec.engine),
        "metrics_url": spec.metrics_url,
        "labels": spec.labels,
        "models": spec.models.as_ref().map(models),
        "capabilities": capabilities(&spec.abilities),
        "context": spec.abilities.context,
        "max_in_flight": spec.limits.max_in_flight,
        "max_sequences": spec.limits.max_sequences,
        "api_key_file": api_key_file,
        "http2": word(&HTTP2, &protocol.http2),
        "host": word(&HOSTS, &protocol.host),
        "tls": upstream_tls(&protocol.tls),
        "timeouts": without_nothing(json!({
            "connect": some(spec.timeouts.connect),
            "first_byte": some(spec.timeouts.first_byte),
            "idle": some(spec.timeouts.idle),
        })),
    }))
}

/// What it can do, where that is written.
fn capabilities(abilities: &Abilities) -> Option<Vec<&'static str>> {
    let can = abilities.can.iter().filter(|(_, can)| **can);
    let words: Vec<_> = can.map(|(one, _)| one.as_str()).collect();
    Some(words).filter(|words| !words.is_empty())
}

/// The word that is read as this.
fn word<T: PartialEq>(words: &[(&'static str, T)], of: &T) -> Option<&'static str> {
    let found = words.iter().find(|(_, one)| one == of);
    found.map(|(word, _)| *word)
}

fn models(models: &Models) -> Json {
    let one = |ModelEntry { id, aliases, parent }: &ModelEntry| {
        if aliases.is_empty() && parent.is_none() {
            return json!(id);
        }
        without_nothing(json!({"id": id, "aliases": aliases, "parent": parent}))
    };
    match models {
        Models::Any => json!("any"),
        Models::Listed(all) => all.iter().map(one).collect(),
    }
}

fn upstream_tls(tls: &Tls) -> Json {
    without_nothing(json!({
        "ca": tls.ca, "certificate": tls.certificate, "key": tls.key, "server_name": tls.server_name,
    }))
}

fn listener_tls(tls: &ListenerTls) -> Json {
    // How clients show themselves is said only where they can be known.
    let certificates = tls.client_ca.as_ref().map(|_| match tls.client_certificates {
        ClientCertificates::Required => "required",
        ClientCertificates::Optional => "optional",
    });
    without_nothing(json!({
        "certificate": tls.certificate,
        "key": tls.key,
        "client_ca": tls.client_ca,
        "client_certificates": certificates,
        "handshake_timeout": show_duration(tls.handshake_timeout),
        "handshakes": tls.handshakes,
        "management": if tls.management { "tls" } else { "plain" },
    }))
}
