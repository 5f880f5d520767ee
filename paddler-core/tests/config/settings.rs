//! Does each setting end up where it belongs, and is each default as it is said to be?

use std::path::PathBuf;
use std::time::Duration;

use paddler_core::config::{
    AdminPaths, ClientCertificates, Config, CountTokens, DecisionRules, Fault, Forwarded, Forwarding,
    HealthRules, Limits, ListenerTls, LogFormat, LogTarget, Mode, ModelTimeouts, NameUpstream, Otlp, Place,
    Poll, Queue, Registry, Retry, Shutdown, Statsd, Timeouts, Traceparent, Value, WebSockets,
};
use paddler_core::queue::MinShares;
use paddler_core::request::{ModelRule, ModelRules};
use paddler_core::schedule::{Tree, trees};
use paddler_core::upstream::{
    Abilities, Capability, Engine, HostHeader, Http2, ModelEntry, Models, Protocol, UpstreamTimeouts,
};

fn read(text: &str) -> Config {
    Config::read(text, "paddler.yaml", Mode::Gateway, &Registry::new()).unwrap()
}

#[test]
fn every_setting_is_read() {
    let config = read(include_str!("../corpus/config/valid/everything.yaml"));
    assert_eq!(config.listen.to_string(), "0.0.0.0:8080");
    assert_eq!(config.management, None);
    assert_eq!(config.server_names, ["llm.example.com"]);
    assert_eq!(config.tree.node_count(), 5);
    let mut queue = Queue::default();
    queue.max_requests = 100;
    queue.max_wait = Duration::from_millis(500);
    queue.max_wait_starting = Duration::from_secs(90);
    queue.min_shares = MinShares::new(30, 10);
    assert_eq!(config.queue, queue);
    assert_eq!(
        config.limits,
        Limits {
            body: 128 << 20,
            buffered_bodies: 2 << 30,
            headers: 16 << 10,
            connections: 10_000,
            streams: 64,
            header_timeout: Duration::from_secs(5),
            body_idle: Duration::from_secs(60),
        }
    );
    let mut big = ModelTimeouts::default();
    big.first_byte = Some(Duration::from_secs(30 * 60));
    big.idle = Some(Duration::from_secs(3 * 60));
    big.whole = Some(Duration::from_secs(2 * 3600));
    let mut small = ModelTimeouts::default();
    small.whole = Some(Duration::from_secs(60));
    assert_eq!(
        config.timeouts,
        Timeouts {
            connect: Duration::from_secs(1),
            first_byte: Duration::from_secs(3600),
            idle: Duration::from_secs(120),
            whole: Some(Duration::from_secs(3 * 3600)),
            client_idle: Duration::from_secs(90),
            tunnel_idle: Duration::from_secs(30),
        }
    );
    let with = |timeouts| {
        let mut rule = ModelRule::default();
        rule.settings.timeouts = timeouts;
        rule
    };
    let mut first = ModelRule::alias("llama-3");
    first.settings.priority = Some(1);
    first.settings.rewrite_response = Some(true);
    first.settings.max_wait = Some(Duration::from_secs(2));
    let rules = ModelRules::new([
        ("gpt-4o", first),
        ("gpt-*", ModelRule::alias("small")),
        ("openai/*", ModelRule::alias("*")),
        ("chat", ModelRule::weighted([("llama-3", 90), ("llama-4", 10)])),
        ("llama-3", with(big)),
        ("small:7b", with(small)),
    ]);
    assert_eq!(config.models, rules.unwrap());
    let peers: Vec<_> = config.trusted_peers.iter().map(ToString::to_string).collect();
    assert_eq!(peers, ["10.0.0.0/8", "::1", "192.168.1.7"]);
    let mut forwarding = Forwarding::default();
    forwarding.forwarded = Forwarded::Both;
    forwarding.traceparent = Traceparent::Make;
    forwarding.name_upstream = NameUpstream::Always;
    assert_eq!(config.forwarding, forwarding);
    let mut decisions = DecisionRules::default();
    (decisions.keep, decisions.per_second) = (50, 0);
    (decisions.log, decisions.log_size) = (Some("decisions.jsonl".into()), 10 << 20);
    assert_eq!(config.decisions, decisions);
    let mut poll = Poll::default();
    poll.interval = Duration::from_millis(250);
    poll.timeout = Duration::from_millis(1500);
    poll.concurrency = 8;
    assert_eq!(config.poll, poll);
    let mut health = HealthRules::default();
    health.eject_after = 5;
    health.eject_time = Duration::from_secs(30);
    health.unreachable_time = Duration::from_millis(500);
    health.longest_time = Duration::from_secs(600);
    health.largest_share = 0.1;
    health.interval = Duration::from_secs(10);
    health.slow_start = Duration::ZERO;
    assert_eq!(config.health, health);
    let mut retry = Retry::default();
    (retry.attempts, retry.share, retry.per_second) = (4, 1.0, 0);
    assert_eq!(config.retry, retry);
    assert_eq!(config.api_key_file, Some(PathBuf::from("/run/secrets/keys")));
    assert_eq!(config.admin_paths, AdminPaths::Open);
    assert_eq!(config.websockets, WebSockets::Open);
    let mut tls = ListenerTls::new("tls.crt", "tls.key");
    tls.client_ca = Some(PathBuf::from("clients.crt"));
    tls.client_certificates = ClientCertificates::Optional;
    tls.handshake_timeout = Duration::from_secs(3);
    (tls.handshakes, tls.management) = (20, true);
    assert_eq!(config.tls, Some(tls));
    let log = config.telemetry.access_log.unwrap();
    assert_eq!(
        (log.file, log.format),
        (LogTarget::File("access.log".into()), LogFormat::Text)
    );
    assert_eq!(config.telemetry.count_tokens, CountTokens::Always);
    let mut statsd = Statsd::new("statsd:8125");
    (statsd.prefix, statsd.interval) = ("llm.edge".into(), Duration::from_secs(1));
    assert_eq!(config.telemetry.statsd, Some(statsd));
    let mut otlp = Otlp::new("https://collector.lan:4318/otel/");
    (otlp.headers_file, otlp.sample) = (Some("otlp.txt".into()), 0.05);
    assert_eq!(config.telemetry.otlp, Some(otlp));
    let mut shutdown = Shutdown::default();
    shutdown.settle = Duration::from_secs(5);
    shutdown.grace = Duration::from_secs(300);
    assert_eq!(config.shutdown, shutdown);
}

#[test]
fn every_part_of_an_upstream_is_read() {
    let config = read(include_str!("../corpus/config/valid/everything.yaml"));
    let [first, second, third] = config.upstreams.as_slice() else {
        panic!("{:?}", config.upstreams);
    };
    assert_eq!(first.spec.id.as_str(), "gpu-1");
    assert_eq!(first.spec.url, "http://10.0.0.3:8080");
    assert_eq!(first.spec.engine, Engine::Llamacpp);
    assert_eq!(first.spec.labels["zone"], "a");
    assert_eq!(first.spec.labels["gpu"], "4090");
    assert_eq!(first.spec.models, Some(Models::Any));
    let abilities = Abilities::only([Capability::Chat, Capability::Vision]).context(8192);
    assert_eq!(first.spec.abilities, abilities);
    assert_eq!(second.spec.abilities, Abilities::default());
    assert_eq!(first.spec.limits.max_in_flight, Some(4));
    assert_eq!(first.spec.limits.max_sequences, None);
    assert_eq!(first.api_key_file, None);

    assert_eq!(second.spec.id.as_str(), "gpu-2.lan:8000");
    assert_eq!(second.spec.url, "http://gpu-2.lan:8000");
    assert_eq!(second.spec.engine, Engine::Vllm);
    let mut adapter = ModelEntry::adapter("sql-adapter", "llama-3");
    adapter.aliases = vec!["sql".into(), "text2sql".into()];
    assert_eq!(
        second.spec.models,
        Some(Models::Listed(vec![ModelEntry::new("llama-3"), adapter]))
    );
    assert_eq!(second.spec.limits.max_sequences, Some(256));
    assert_eq!(first.spec.metrics_url, None);
    assert_eq!(
        second.spec.metrics_url.as_deref(),
        Some("http://gpu-2.lan:9400/metrics")
    );
    assert_eq!(first.spec.timeouts, UpstreamTimeouts::default());
    let mut timeouts = UpstreamTimeouts::default();
    timeouts.connect = Some(Duration::from_millis(500));
    timeouts.first_byte = Some(Duration::from_secs(20 * 60));
    timeouts.idle = Some(Duration::from_secs(90));
    assert_eq!(second.spec.timeouts, timeouts);
    assert_eq!(second.api_key_file, Some(PathBuf::from("/run/secrets/gpu-2")));
    assert_eq!(second.spec.protocol, Protocol::default());

    assert_eq!(third.spec.url, "https://gpu-3.lan:443");
    let file = |name: &str| Some(PathBuf::from(name));
    let mut protocol = Protocol::default();
    protocol.http2 = Http2::Always;
    protocol.host = HostHeader::Keep;
    protocol.tls.ca = file("ca.pem");
    protocol.tls.certificate = file("own.pem");
    protocol.tls.key = file("own.key");
    protocol.tls.server_name = Some("gpu-3".into());
    assert_eq!(third.spec.protocol, protocol);
}

#[test]
fn what_is_not_said_is_as_by_default() {
    let shown = |config: &Config| format!("{config:?}");
    assert_eq!(shown(&read("")), shown(&Config::default()));
    assert_eq!(shown(&read("{}")), shown(&Config::default()));
    let said = "
listen: 127.0.0.1:8080
management: 127.0.0.1:8081
upstreams: []
tree: gateway
queue: {max_requests: 30, max_wait: 10s, max_wait_starting: 60s, min_shares: {standard: 25%, sheddable: 5%}}
limits: {body: 64MiB, buffered_bodies: 1GiB, headers: 64KiB, connections: 4096, header_timeout: 75s, body_idle: 30s}
timeouts: {connect: 2s, first_byte: 10m, idle: 60s, whole: off, client_idle: 60s, tunnel_idle: 5m, models: {}}
poll: {interval: 1s, timeout: 3s, concurrency: 64}
health:
  {eject_after: 3, eject_time: 5s, unreachable_time: 1s, longest_time: 5m, largest_share: 0.5, interval: 1m, slow_start: 30s}
retry: {attempts: 16, share: 0.2, per_second: 10}
admin_paths: closed
server_names: []
trusted_peers: []
forwarding: {forwarded: off, traceparent: pass, name_upstream: on_demand}
decisions: {keep: 1000, per_second: 100, log_size: 1GiB}
shutdown: {settle: 0s, grace: 30s}
";
    assert_eq!(shown(&read(said)), shown(&Config::default()));
    let one = read("queue: {max_requests: 0}");
    assert_eq!(one.queue.max_requests, 0);
    assert_eq!(one.queue.max_wait, Queue::default().max_wait);
}

#[test]
fn the_mode_chooses_the_tree() {
    let alike = |one: &Tree, other: &Tree| assert_eq!(one.to_string(), other.to_string());
    alike(&Config::default_for(Mode::Gateway).tree, &trees::gateway());
    alike(&Config::default_for(Mode::Balancer).tree, &trees::balancer());
    let read = |text| Config::read(text, "", Mode::Balancer, &Registry::new()).unwrap();
    alike(&read("").tree, &trees::balancer());
    alike(&read("tree: gateway").tree, &trees::gateway());
}

#[test]
fn a_value_without_places_has_faults_without_places() {
    let json = serde_json::json!({"queue": {"max_wait": 10}, "listen": true});
    let value = Value::from_json(&json).unwrap();
    let faults = Config::from_value(&value, "call", Mode::Gateway, &Registry::new()).unwrap_err();
    assert_eq!(
        faults.to_string(),
        "call: listen: an address such as 127.0.0.1:8080 should stand here, not true\n\
         call: queue.max_wait: 10 needs a unit; write \"10s\""
    );
    assert!(faults.faults.iter().all(|fault| fault.place.is_none()));
}

#[test]
fn a_fault_is_data_too() {
    let text = "tree:\n  - require: helthy\n  - pick: random\n";
    let faults = Config::read(text, "paddler.yaml", Mode::Gateway, &Registry::new()).unwrap_err();
    let place = Place { line: 2, column: 14 };
    let fault = Fault::new("tree[0].require", Some(place), "\"helthy\" is not a filter");
    assert_eq!(faults.name, "paddler.yaml");
    assert_eq!(faults.faults, [fault.mend("did you mean \"healthy\"?")]);
    assert_eq!(faults.more, 0);
}

#[test]
fn a_built_in_tree_follows_the_poll_interval() {
    let tree = |text: &str| read(text).tree.to_string();
    assert!(tree("tree: balancer").contains("fresh 10s"));
    assert!(tree("tree: balancer\npoll: {interval: 30s}").contains("fresh 300s"));
    assert!(
        tree("poll: {interval: 30s, timeout: 5s}").contains("fresh 300s"),
        "the default tree, too"
    );
    let of_ones_own = "tree: [prefer: {fresh: {max_age: 20s}}, pick: random]\npoll: {interval: 30s}";
    assert!(tree(of_ones_own).contains("fresh 20s"));
    // Flags come over the file, and may change the interval once more.
    let flags = Value::from_json(&serde_json::json!({"poll": {"interval": "2s"}})).unwrap();
    let config = read("poll: {interval: 30s}")
        .overlay(&flags, "flags", &Registry::new())
        .unwrap();
    assert!(config.tree.to_string().contains("fresh 20s"));
}

#[test]
fn a_poll_outlasts_a_connection() {
    let faults = Config::read("poll: {timeout: 1s}", "x", Mode::Gateway, &Registry::new()).unwrap_err();
    assert!(
        faults
            .to_string()
            .contains("`poll.timeout` is not longer than `timeouts.connect`"),
        "{faults}"
    );
}

#[test]
fn what_is_off_is_off_and_what_stays_stays() {
    let config = read("access_log: off\nstatsd: off\notlp: off\n");
    assert_eq!(config.telemetry, Config::default().telemetry);
    let log = |text: &str| read(text).telemetry.access_log.map(|log| (log.file, log.format));
    assert_eq!(log("access_log: {file: off}"), None);
    assert_eq!(
        log("access_log: {file: stderr}"),
        Some((LogTarget::Stderr, LogFormat::Json))
    );
    // Flags come over the file, each for itself.
    let flags = serde_json::json!({"statsd": {"prefix": "edge"}});
    let file = read("statsd: {address: \"[::1]:8125\", interval: 1m}");
    let both = file
        .overlay(&Value::from_json(&flags).unwrap(), "", &Registry::new())
        .unwrap();
    let statsd = both.telemetry.statsd.unwrap();
    let said = (
        statsd.address.as_str(),
        statsd.prefix.as_str(),
        statsd.interval.as_secs(),
    );
    assert_eq!(said, ("[::1]:8125", "edge", 60));
}
