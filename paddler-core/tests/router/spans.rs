//! Does a request become a span of its caller's trace, and are upstreams told that theirs belong to ours?

use std::sync::Arc;

use paddler_core::config::{Otlp, Telemetry};
use paddler_core::observe::export::Exports;
use serde_json::{Value, json};

use super::client::{CHAT, ask, eventually, of_model};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// A router whose spans go to the collector.
async fn world(collector: &Stub, sample: f64, upstreams: &[(&str, &str)]) -> (World, Exports) {
    let mut telemetry = Telemetry::default();
    let mut otlp = Otlp::new(format!("{}/below/", collector.url));
    otlp.sample = sample;
    telemetry.otlp = Some(otlp);
    let mut exports = Exports::open(&telemetry).unwrap();
    let setup = Setup::new().with(|setup| setup.options.telemetry = exports.telemetry());
    let specs = upstreams.iter().map(|(id, url)| spec(id, *url));
    let world = setup.start(specs).await;
    exports.follow(&world.router);
    (world, exports)
}

fn header(request: &str, name: &str) -> Option<String> {
    let line = request
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.map(str::to_owned)
}

/// All spans that the collector was sent.
fn spans(collector: &Stub) -> Vec<Value> {
    let mut all = Vec::new();
    for request in collector.seen() {
        assert!(
            request.starts_with("POST /below/v1/traces HTTP/1.1\r\n"),
            "{request}"
        );
        let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
        let resource = &body["resourceSpans"][0];
        let service = json!({ "key": "service.name", "value": { "stringValue": "paddler" } });
        assert_eq!(resource["resource"]["attributes"][0], service);
        all.extend(
            resource["scopeSpans"][0]["spans"]
                .as_array()
                .unwrap()
                .iter()
                .cloned(),
        );
    }
    all
}

fn attribute(span: &Value, key: &str) -> Option<Value> {
    let all = span["attributes"].as_array()?;
    let found = all.iter().find(|attribute| attribute["key"] == key)?;
    Some(found["value"].clone())
}

/// In this JSON ids are hexadecimal and times are text.
fn check(span: &Value) {
    let is_hex = |id: &Value, digits| {
        let id = id.as_str().unwrap();
        id.len() == digits && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    assert!(
        is_hex(&span["traceId"], 32) && is_hex(&span["spanId"], 16),
        "{span}"
    );
    assert!(span.get("parentSpanId").is_none_or(|id| is_hex(id, 16)), "{span}");
    let time = |name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    let (from, to) = (time("startTimeUnixNano"), time("endTimeUnixNano"));
    // After 2020, and in order.
    assert!(1_577_836_800_000_000_000 < from && from <= to, "{span}");
    assert!(
        span["name"].is_string() && (1..=3).contains(&span["kind"].as_u64().unwrap()),
        "{span}"
    );
}

async fn post(world: &World, traceparent: Option<&str>) -> u16 {
    let mut headers = "content-type: application/json\r\nx-request-id: mine\r\n".to_owned();
    if let Some(traceparent) = traceparent {
        headers += &format!("traceparent: {traceparent}\r\ntracestate: a=1\r\n");
    }
    ask(world.addr, "POST", CHAT, &headers, of_model("m").to_string())
        .await
        .status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_are_between_the_callers_span_and_the_upstreams() {
    let (collector, engine) = (
        Stub::start([Do::ok("{}")]).await,
        Stub::start([Do::ok("{}")]).await,
    );
    let (world, exports) = world(&collector, 0.0, &[("a", &engine.url)]).await;
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    assert_eq!(post(&world, Some(&traceparent)).await, 200);
    let told = header(&engine.seen()[0], "traceparent").unwrap();
    assert_eq!(header(&engine.seen()[0], "tracestate").unwrap(), "a=1");
    eventually("it has ended", || {
        world.metric("paddler_in_flight_requests") == 0.0
    })
    .await;
    exports.flush().await;
    let spans = spans(&collector);
    spans.iter().for_each(check);
    let [server, wait, client] = &spans[..] else {
        panic!("{spans:?}");
    };
    for span in &spans {
        assert_eq!(
            (&span["traceId"], &span["traceState"]),
            (&json!(TRACE), &json!("a=1"))
        );
    }
    assert_eq!(
        (&server["kind"], &server["parentSpanId"]),
        (&json!(2), &json!(CALLER))
    );
    assert_eq!(server["name"], "chat m");
    for span in [wait, client] {
        assert_eq!(span["parentSpanId"], server["spanId"]);
    }
    assert_eq!((&wait["kind"], &client["kind"]), (&json!(1), &json!(3)));
    assert_eq!(
        told,
        format!("00-{TRACE}-{}-01", client["spanId"].as_str().unwrap())
    );
    for (key, value) in [
        ("http.request.method", json!({"stringValue": "POST"})),
        ("http.response.status_code", json!({"intValue": "200"})),
        ("gen_ai.operation.name", json!({"stringValue": "chat"})),
        ("gen_ai.request.model", json!({"stringValue": "m"})),
        ("paddler.upstream", json!({"stringValue": "a"})),
        ("paddler.request.id", json!({"stringValue": "mine"})),
    ] {
        assert_eq!(attribute(server, key), Some(value), "{key}");
    }
    assert_eq!(
        (attribute(server, "error.type"), server.get("status")),
        (None, None)
    );
    assert_eq!(server["events"][0]["name"], "first byte");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attempt_has_its_span_and_what_it_failed_by() {
    let collector = Stub::start([Do::ok("{}")]).await;
    let busy = Do::say("HTTP/1.1 503 Loading\r\ncontent-length: 0\r\n\r\n");
    let [loads, works] = [Stub::start([busy]).await, Stub::start([Do::ok("{}")]).await];
    let (world, exports) = world(&collector, 1.0, &[("loads", &loads.url), ("works", &works.url)]).await;
    // Until it was tried there first.
    while loads.seen().is_empty() {
        assert_eq!(post(&world, None).await, 200);
    }
    eventually("it has ended", || {
        world.metric("paddler_in_flight_requests") == 0.0
    })
    .await;
    exports.flush().await;
    let all = spans(&collector);
    let told = header(&loads.seen()[0], "traceparent").unwrap();
    let of_trace = |span: &&Value| span["traceId"].as_str() == told.split('-').nth(1);
    let all: Vec<_> = all.iter().filter(of_trace).collect();
    all.iter().for_each(|span| check(span));
    let [server, _, first, second] = all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(server.get("parentSpanId"), None, "it begins here");
    assert!(told.contains(first["spanId"].as_str().unwrap()));
    let answered = works.seen().pop().unwrap();
    let told = header(&answered, "traceparent").unwrap();
    assert!(told.contains(second["spanId"].as_str().unwrap()) && told.ends_with("-01"));
    assert_eq!(
        attribute(first, "error.type"),
        Some(json!({"stringValue": "refused"}))
    );
    assert_eq!(first["status"]["code"], 2);
    assert_eq!(
        attribute(second, "http.request.resend_count"),
        Some(json!({"intValue": "1"}))
    );
    assert_eq!((second.get("status"), server.get("status")), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_recorded_passes_as_it_came() {
    let (collector, engine) = (
        Stub::start([Do::ok("{}")]).await,
        Stub::start([Do::ok("{}")]).await,
    );
    let (world, exports) = world(&collector, 0.0, &[("a", &engine.url)]).await;
    let unsampled = format!("00-{TRACE}-{CALLER}-00");
    for (number, traceparent) in [Some(unsampled.as_str()), None, Some("nonsense")]
        .into_iter()
        .enumerate()
    {
        assert_eq!(post(&world, traceparent).await, 200);
        let told = header(&engine.seen()[number], "traceparent");
        assert_eq!(told.as_deref(), traceparent.filter(|text| *text != "nonsense"));
    }
    exports.flush().await;
    assert!(collector.seen().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_lost_is_on_the_page() {
    let (collector, engine) = (
        Stub::start([Do::say("HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n")]).await,
        Stub::start([Do::ok("{}")]).await,
    );
    let (world, exports) = world(&collector, 1.0, &[("a", &engine.url)]).await;
    let exports = Arc::new(exports);
    assert_eq!(post(&world, None).await, 200);
    eventually("it has ended", || {
        world.metric("paddler_in_flight_requests") == 0.0
    })
    .await;
    exports.flush().await;
    assert_eq!(world.metric("paddler_telemetry_lost_total"), 3.0);
}
