//! How does the program run as an agent?

use std::sync::Arc;
use std::time::Duration;

use paddler_core::agent::{Agent, AgentOptions};
use paddler_core::config::{Config, Registry, UpstreamConfig, Value};
use paddler_core::upstream::http::{HttpConnect, UpstreamKey, check_tls};
use paddler_core::upstream::{Http2, Tls, UpstreamId, UpstreamSpec};
use serde_json::{Map, json};

use crate::Failure;
use crate::args::agent::{AgentArgs, BEAT, LOOK};
use crate::args::old::{address_of, time_of};
use crate::stop::Stops;

/// How long balancers have to hear the good-bye.
const GOOD_BYE: Duration = Duration::from_secs(3);

/// No look at an engine, and no word, comes sooner or later than that after another.
const TIMES: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(120)];

/// Tells the balancers of the engine until it is told to stop.
pub(crate) async fn run(args: AgentArgs) -> Result<(), Failure> {
    let stops = Stops::listen()?;
    let options = options(args)?;
    let (upstream, engine) = (&options.upstream, &options.engine);
    let balancers: Vec<_> = options
        .balancers
        .iter()
        .map(|balancer| balancer.url.as_str())
        .collect();
    tracing::info!(upstream = %upstream.id, url = upstream.url, engine = engine.url, balancers = balancers.join(", "), "telling of an engine");
    if upstream.leads_here() && options.balancers.iter().any(|balancer| !balancer.leads_here()) {
        tracing::warn!(
            url = upstream.url,
            "a balancer elsewhere cannot reach this: say by which address it can, with --external-url"
        );
    }
    let agent = Agent::start(options, Arc::new(HttpConnect::default())).map_err(|error| error.to_string())?;
    stops.reach(1).await;
    tracing::info!("stopping: saying good-bye to the balancers");
    tokio::select! {
        () = agent.stop(GOOD_BYE) => {}
        () = stops.reach(2) => {}
    }
    Ok(())
}

/// What the arguments come to.
fn options(args: AgentArgs) -> Result<AgentOptions, Failure> {
    let old = &args.old;
    let engine_url = url(
        &args.engine_url,
        &old.local_llamacpp_addr,
        "--local-llamacpp-addr",
    )?;
    let engine_url = engine_url.ok_or("say where the engine is, with --engine-url")?;
    let external = url(
        &args.external_url,
        &old.external_llamacpp_addr,
        "--external-llamacpp-addr",
    )?;
    // By its own name, before it is taken for the other.
    spec(json!({"url": engine_url}), "--engine-url")?;
    let mut upstream = upstream(&args, external.as_ref().unwrap_or(&engine_url))?;
    upstream.id = id(&args, &upstream)?;
    let mut engine = spec(json!({"id": upstream.id, "url": engine_url}), "--engine-url")?;
    engine.engine = upstream.engine;
    if let Some(key) = &old.llamacpp_api_key {
        let key = UpstreamKey::new(key).ok_or("--llamacpp-api-key: a key is of visible ASCII characters")?;
        engine.extensions.insert(key);
    }
    if let Some(file) = &args.engine_api_key_file {
        engine.extensions.insert(UpstreamKey::read(file, &engine.id)?);
    }
    let mut options = AgentOptions::new(upstream, balancers(&args)?);
    options.engine = engine;
    options.name.clone_from(&args.name);
    let every = args
        .poll_interval
        .clone()
        .or_else(|| old.monitoring_interval.as_deref().map(time_of));
    options.poll.interval = time(every.as_deref().unwrap_or(LOOK), "--poll-interval")?;
    options.poll.max_backoff = options.poll.max_backoff.max(options.poll.interval);
    options.beat = time(args.heartbeat.as_deref().unwrap_or(BEAT), "--heartbeat")?;
    // Agents that were started at once do not call at once, each time that a balancer is away.
    options.seed = u64::from(std::process::id());
    Ok(options)
}

/// A URL, or an address of Paddler 1.x.
fn url(url: &Option<String>, address: &Option<String>, flag: &str) -> Result<Option<String>, Failure> {
    match (url, address) {
        (Some(url), _) => Ok(Some(url.clone())),
        (None, Some(address)) => Ok(Some(format!("http://{}", address_of(address, flag)?))),
        (None, None) => Ok(None),
    }
}

/// Reads an upstream in the words of a config file. `flag`: the one that says where it is.
fn spec(words: serde_json::Value, flag: &str) -> Result<UpstreamSpec, Failure> {
    let read = Value::from_json(&words).and_then(|value| UpstreamConfig::from_value(&value, ""));
    let read = read.map_err(|mut faults| {
        for fault in &mut faults.faults {
            if fault.path == "url" {
                fault.path = flag.to_owned();
            }
        }
        faults
    })?;
    if read.dns {
        return Err(format!("{flag}: one engine has one address, and dns+ is for many").into());
    }
    Ok(read.spec)
}

fn upstream(args: &AgentArgs, url: &str) -> Result<UpstreamSpec, Failure> {
    let mut labels = Map::new();
    for label in &args.label {
        let (name, value) = label
            .split_once('=')
            .ok_or_else(|| format!("--label {label}: write NAME=VALUE"))?;
        labels.insert(name.to_owned(), value.into());
    }
    let mut words = json!({"url": url, "labels": labels});
    if let Some(most) = args.max_in_flight {
        words["max_in_flight"] = most.into();
    }
    if let Some(engine) = args.engine {
        words["engine"] = engine.word().into();
    }
    spec(words, "--external-url")
}

/// What it is called, and stays when it is started again.
fn id(args: &AgentArgs, upstream: &UpstreamSpec) -> Result<UpstreamId, Failure> {
    if let Some(id) = &args.id {
        return UpstreamId::new(id.as_str()).map_err(|why| format!("--id: {why}").into());
    }
    let from_name = |name: &String| {
        let id: String = name
            .trim()
            .chars()
            .map(|c| {
                if c.is_whitespace() || c.is_control() {
                    '-'
                } else {
                    c
                }
            })
            .collect();
        UpstreamId::new(id).ok()
    };
    // That of the upstream is its host and port.
    Ok(args
        .name
        .as_ref()
        .and_then(from_name)
        .unwrap_or_else(|| upstream.id.clone()))
}

fn balancers(args: &AgentArgs) -> Result<Vec<UpstreamSpec>, Failure> {
    let old = url(&None, &args.old.management_addr, "--management-addr")?;
    let urls = args
        .balancer
        .iter()
        .map(|url| url.trim().to_owned())
        .filter(|url| !url.is_empty());
    let mut tls = Tls::default();
    tls.ca.clone_from(&args.balancer_ca);
    tls.certificate.clone_from(&args.certificate);
    tls.key.clone_from(&args.key);
    let urls: Vec<_> = urls.chain(old).collect();
    if tls != Tls::default() || urls.iter().any(|url| url.starts_with("https")) {
        check_tls(&tls).map_err(|fault| format!("the TLS of the balancers: {fault}"))?;
    }
    urls.into_iter()
        .map(|url| {
            let mut balancer = spec(json!({"url": url}), "--balancer")?;
            if let Some(file) = &args.token_file {
                balancer.extensions.insert(UpstreamKey::read(file, &balancer.id)?);
            }
            balancer.protocol.http2 = Http2::Never;
            if balancer.url.starts_with("https") {
                balancer.protocol.tls = tls.clone();
            }
            Ok(balancer)
        })
        .collect()
}

fn time(text: &str, flag: &str) -> Result<Duration, Failure> {
    let [shortest, longest] = TIMES;
    // Read as the config reads the time between two polls.
    let words = Value::from_json(&json!({"poll": {"interval": text}}))?;
    let read = Config::default().overlay(&words, "", &Registry::new());
    let read = read.map_err(|mut faults| {
        faults
            .faults
            .iter_mut()
            .for_each(|fault| fault.path = flag.to_owned());
        faults
    })?;
    let parsed = read.poll.interval;
    if !(shortest..=longest).contains(&parsed) {
        return Err(format!("{flag}: {text} is out of range: {shortest:?} to {longest:?}").into());
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn read(args: &[&str]) -> Result<AgentOptions, String> {
        let args =
            AgentArgs::try_parse_from([&["agent"], args].concat()).map_err(|error| error.to_string())?;
        options(args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_flags_of_1_x_mean_what_they_meant() {
        let old = read(&[
            "--local-llamacpp-addr=127.0.0.1:8080",
            "--external-llamacpp-addr=10.0.0.3:8080",
            "--management-addr=10.0.0.1:8085",
            "--monitoring-interval=500",
            "--llamacpp-api-key=sk-1",
            "--name=gpu one",
        ])
        .unwrap();
        assert_eq!(
            (old.upstream.id.as_str(), old.name.as_deref()),
            ("gpu-one", Some("gpu one"))
        );
        assert_eq!(
            (old.engine.url.as_str(), old.upstream.url.as_str()),
            ("http://127.0.0.1:8080", "http://10.0.0.3:8080")
        );
        assert_eq!(
            (old.balancers[0].url.as_str(), old.poll.interval),
            ("http://10.0.0.1:8085", Duration::from_millis(500))
        );
        assert!(old.engine.extensions.get::<UpstreamKey>().is_some());
        assert!(
            old.upstream.extensions.get::<UpstreamKey>().is_none(),
            "nobody is told the key"
        );

        let now = read(&[
            "--engine-url=http://127.0.0.1:8080",
            "--balancer=http://b:1,http://c:2",
            "--label=zone=a",
        ])
        .unwrap();
        assert_eq!(
            (now.upstream.id.as_str(), now.upstream.labels["zone"].as_str()),
            ("127.0.0.1:8080", "a")
        );
        assert_eq!(
            (now.balancers.len(), now.beat, now.poll.interval),
            (2, Duration::from_secs(1), Duration::from_millis(250))
        );
    }

    #[test]
    fn what_is_wrong_is_named_by_its_flag() {
        let good = ["--engine-url=http://a", "--balancer=http://b"];
        for (args, says) in [
            (&["--engine-url=a:80", "--balancer=http://b"][..], "--e"),
            (&["--engine-url=http://a"], "--balancer"),
            (&["--balancer=http://b"], "--engine-url"),
            (&["--engine-url=http://a", "--balancer=b:1"], "--balancer"),
            (&[good[0], good[1], "--heartbeat=10"], "--heartbeat"),
            (
                &[good[0], good[1], "--poll-interval=1h"],
                "--poll-interval: 1h is out of range",
            ),
            (&[good[0], good[1], "--label=a"], "NAME=VALUE"),
            (&[good[0], good[1], "--id=a b"], "--id"),
            (&[good[0], good[1], "--token-file=/no/such"], "/no/such"),
        ] {
            let error = read(args).unwrap_err();
            assert!(error.contains(says), "{args:?}: {error}");
        }
    }
}
