//! Does the picker decide over gRPC as the vectors say?
//!
//! Those that the core's own `tests/vectors.rs` runs for decisions, asked as Envoy asks; what comes out of each is written to
//! the file that PADDLER_VECTOR_OUTCOMES names, as there. And those of family `ext_proc`, which are about this protocol.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "a part of it is used")]
#[path = "picker/envoy.rs"]
mod envoy;
#[path = "../../../paddler-core/tests/pool/mod.rs"]
mod pool;
#[path = "../../../paddler-core/tests/support/vectors.rs"]
mod shared;

use std::collections::BTreeSet;
use std::sync::Arc;

use envoy::{Stream, list, request_body, request_headers, response_body, response_headers, with_metadata};
use paddler_core::forward::{RouterOptions, ServeOptions};
use paddler_core::schedule::filters::{Bound, all_of, kv_cache, lora_active, queue_depth};
use paddler_core::schedule::{Class, Condition, Node, Signals, Tree, costs};
use paddler_core::status::{StatusBoard, StatusEvent};
use paddler_core::upstream::http::HttpConnect;
use paddler_core::upstream::{Connect, Transport, UpstreamId, UpstreamSpec};
use paddler_core::{Clock, Moment};
use paddler_envoy::{EnvoyConnect, Picker, PickerOptions, serve};
use serde_json::{Value, json};
use shared::{NOT_BUILT, asked, has, report_of, text_of, tree_of, vectors};
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint};

/// How often one is asked where a draw decides: of up to eight who are left four are named each time, so one of them stays
/// unnamed once in 2^24 times, and the draws are the same each time.
const ASKS: usize = 24;

/// A picker over these pods, by their number at 10.0.0.0.
struct World {
    channel: Channel,
    _board: StatusBoard,
}

/// The address of a pod: its name, if that is one.
fn address(number: usize, name: &str) -> String {
    if name.contains(':') {
        name.to_owned()
    } else {
        format!("10.0.0.{}:8000", number + 1)
    }
}

async fn world(tree: Tree, pods: &[Value], counts_waiting: bool) -> World {
    let clock = Clock::new();
    let mut board = StatusBoard::new(tree);
    let connect = Arc::new(EnvoyConnect::new(Arc::new(HttpConnect::default())));
    for (number, pod) in pods.iter().enumerate() {
        let name = text_of(pod, "name");
        let mut spec = UpstreamSpec::new(name, format!("http://{}", address(number, name))).unwrap();
        spec.extensions.insert(Transport(connect.connect(&spec).unwrap()));
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        let (id, report) = (UpstreamId::new(name).unwrap(), report_of(pod, counts_waiting));
        board.apply(
            StatusEvent::Report {
                id,
                report,
                sample: None,
            },
            Moment::ZERO,
        );
    }
    board.publish(clock.now());
    let mut options = RouterOptions::default();
    options.seed = Some(1);
    let picker = Picker::new(board.published(), clock, options, PickerOptions::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let never = std::future::pending;
    tokio::spawn(serve(listener, picker, ServeOptions::default(), never(), never()));
    let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
    World {
        channel,
        _board: board,
    }
}

/// Where a request goes, or with which status and reason it is refused.
type Answer = Result<Vec<String>, (u16, String)>;

impl World {
    /// The stream of one request, said to its end.
    async fn ask(&self, headers: &[(&str, &str)], subset: Option<Value>, body: &[&str]) -> Stream {
        let stream = Stream::open(self.channel.clone()).await;
        let mut all = vec![("x-paddler-max-wait", "0")];
        all.extend(headers);
        let mut head = request_headers("POST", "/v1/completions", &all, body.is_empty());
        if let Some(subset) = subset {
            let texts: Vec<_> = subset
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let key = "x-gateway-destination-endpoint-subset";
            head = with_metadata(head, "envoy.lb.subset_hint", key, list(&texts));
        }
        stream.say(head).await;
        for (number, piece) in body.iter().enumerate() {
            stream.say(request_body(*piece, number + 1 == body.len())).await;
        }
        stream
    }
}

async fn answer(stream: &mut Stream) -> Answer {
    stream.placed_or_refused().await.map(|placed| placed.endpoints)
}

fn pods_of(value: &Value) -> Vec<Value> {
    value["pods"].as_array().cloned().unwrap_or_default()
}

/// What is left and who refuses, in the words of the core's run.
async fn outcome(vector: &Value, tree: Tree) -> Value {
    let pods = pods_of(vector);
    let counts_waiting = vector["params"]["count_waiting"].as_bool().unwrap_or(false);
    let world = world(tree, &pods, counts_waiting).await;
    let (model, priority) = asked(&vector["request"]);
    let (body, priority) = (
        json!({"model": model, "prompt": "x"}).to_string(),
        priority.to_string(),
    );
    let mut left = BTreeSet::new();
    for _ in 0..ASKS {
        let headers = [("x-gateway-inference-objective", priority.as_str())];
        let mut stream = world.ask(&headers, None, &[&body]).await;
        match answer(&mut stream).await {
            Ok(endpoints) => left.extend(endpoints),
            Err((_, reason)) => return json!({"refused": reason}),
        }
    }
    let names = pods
        .iter()
        .enumerate()
        .map(|(number, pod)| (number, text_of(pod, "name")));
    let left = names.filter(|(number, name)| left.contains(&address(*number, name)));
    json!({"pods": left.map(|(_, name)| name).collect::<BTreeSet<_>>()})
}

/// What a vector expects, in the same words; of one that is refused only that it is, and how.
fn agrees(outcome: &Value, expect: &Value) -> bool {
    let reason = outcome["refused"].as_str();
    match (expect["error"].as_str(), expect["pods"].as_array()) {
        (Some("filter_error"), _) => reason == Some("filter_failed"),
        (Some(_), _) => reason.is_some(),
        (None, Some(pods)) if pods.is_empty() => reason.is_some(),
        (None, pods) => {
            let pods: BTreeSet<_> = pods.into_iter().flatten().filter_map(Value::as_str).collect();
            *outcome == json!({"pods": pods})
        }
    }
}

#[tokio::test]
async fn the_vectors_hold_over_grpc() {
    let (path, file) = vectors();
    let (mut outcomes, mut faults, mut run) = (String::new(), Vec::new(), 0);
    for vector in file["vectors"].as_array().expect("a list of vectors") {
        let (id, family, name) = (
            text_of(vector, "id"),
            text_of(vector, "family"),
            text_of(vector, "filter"),
        );
        let decides = ["decision_tree", "filter", "ext_proc_schedule"].contains(&family);
        let never_scraped = pods_of(vector)
            .iter()
            .any(|pod| pod.get("metrics").is_some_and(Value::is_null));
        let deviates = NOT_BUILT.deviations.contains_key(id) || id == NOT_ASKED;
        if !decides || has(&NOT_BUILT.names, name) || never_scraped || deviates {
            continue;
        }
        run += 1;
        let outcome = outcome(vector, tree_of(name, &vector["params"]).unwrap()).await;
        if !agrees(&outcome, &vector["expect"]) {
            faults.push(format!("{id}: expected {}, got {outcome}", vector["expect"]));
        }
        outcomes.push_str(&format!("{}\n", json!({"name": id, "outcome": outcome})));
    }
    println!("\nvectors over gRPC {run}");
    if let Some(path) = std::env::var_os("PADDLER_VECTOR_OUTCOMES") {
        std::fs::write(path, outcomes).unwrap();
    }
    assert!(run > 0, "no vectors in {}", path.display());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What cannot be asked of a router: it asks no tree about an empty pool.
const NOT_ASKED: &str = "tree.filter-error-without-successor";

/// Where the family `ext_proc` means something else, and what we mean; ours is asserted.
const DEVIATIONS: [(&str, &str); 3] = [
    ("extproc.model-missing", "a missing model means any"),
    (
        "extproc.headers-only-no-pods",
        "nobody can serve: 503, as with a body",
    ),
    (
        "extproc.response-json-multi-chunk",
        "pieces are passed on as they come, without a header for looking into it",
    ),
];

/// As their default does: to whoever has the adapter, then to the shortest queue; what may be shed is, where all are busy.
fn default_tree() -> Tree {
    let best = || [Node::prefer(lora_active()), Node::least(costs::queue())];
    let room = all_of([
        Arc::new(queue_depth(Bound::AtMost(5.0))) as _,
        Arc::new(kv_cache(Bound::AtMost(0.8))) as _,
    ]);
    let sheddable = [Node::require_or(room, Class::Shed)].into_iter().chain(best());
    let tree = Node::when(Condition::Critical, Node::list(best()), Node::list(sheddable));
    Tree::new(Signals::Reported, Node::list([tree])).unwrap()
}

#[tokio::test]
async fn the_vectors_about_ext_proc_hold() {
    let (path, file) = vectors();
    let (mut run, mut faults) = (0, Vec::new());
    let all = file["vectors"].as_array().expect("a list of vectors").iter();
    for vector in all.filter(|vector| text_of(vector, "family") == "ext_proc") {
        run += 1;
        let id = text_of(vector, "id");
        let held = if vector["params"]["direction"] == "response" {
            response(id, &vector["params"], &vector["expect"]).await
        } else {
            request(id, &vector["params"], &vector["expect"]).await
        };
        faults.extend(held.err().map(|fault| format!("{id}: {fault}")));
    }
    println!("\nvectors about ext_proc {run}");
    assert!(run > 0, "no vectors in {}", path.display());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What a request has in the body, in pieces.
fn body_of(params: &Value) -> Vec<String> {
    let pieces = params["body_chunks"].as_array();
    let pieces = pieces.map(|pieces| {
        pieces
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    });
    pieces.unwrap_or_else(|| match (params["body"].as_str(), params["model"].as_str()) {
        (Some(body), _) => vec![body.to_owned()],
        (None, Some(model)) => vec![json!({"model": model, "prompt": "x"}).to_string()],
        (None, None) => vec![r#"{"prompt":"x"}"#.to_owned()],
    })
}

fn check<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    if got == expected {
        Ok(())
    } else {
        Err(format!("{what}: expected {expected:?}, got {got:?}"))
    }
}

async fn request(id: &str, params: &Value, expect: &Value) -> Result<(), String> {
    let world = world(default_tree(), &pods_of(params), false).await;
    let body = if params["headers_only"] == true {
        Vec::new()
    } else {
        body_of(params)
    };
    let pieces: Vec<&str> = body.iter().map(String::as_str).collect();
    let priority = params["priority"].as_i64().map(|priority| priority.to_string());
    let rewrite = params["rewrite"].as_str();
    let mut headers: Vec<(&str, &str)> = Vec::new();
    headers.extend(
        priority
            .as_deref()
            .map(|priority| ("x-gateway-inference-objective", priority)),
    );
    headers.extend(rewrite.map(|rewrite| ("x-gateway-model-name-rewrite", rewrite)));
    if params["parser"] == "passthrough" {
        // What is no JSON says so.
        headers.extend([("content-type", "text/plain"), (":path", "/anything")]);
    }
    if body.is_empty() {
        headers.extend([(":method", "GET"), (":path", "/anything")]);
    }
    let subset = params.get("subset").filter(|subset| !subset.is_null()).cloned();
    let mut stream = world.ask(&headers, subset, &pieces).await;
    let placed = stream.placed_or_refused().await;
    if DEVIATIONS.iter().any(|(deviant, _)| *deviant == id) {
        let refused = placed.err();
        return check("refused", &refused, &Some((503, "no_upstream".to_owned())));
    }
    let placed = match (placed, expect["immediate_status"].as_u64()) {
        (Err((status, _)), Some(expected)) => return check("status", &u64::from(status), &expected),
        (Ok(placed), None) => placed,
        (got, expected) => return Err(format!("expected {expected:?}, got {got:?}")),
    };
    if let Some(destination) = expect["destination"].as_str() {
        let many = destination.split(',').count();
        check(
            "destination",
            &placed.endpoints[..many].join(","),
            &destination.to_owned(),
        )?;
    }
    check("metadata", &placed.metadata, &placed.endpoints.join(","))?;
    check("clear_route_cache", &placed.clears_route_cache, &true)?;
    let came = body.concat();
    let back = String::from_utf8(stream.body().await).unwrap();
    if let Some(model) = expect["body_model"].as_str() {
        let back: Value = serde_json::from_str(&back).map_err(|error| error.to_string())?;
        check("model", &back["model"].as_str(), &Some(model))?;
    }
    if expect["body_unchanged"] == true || rewrite.is_none() {
        check("body", &back, &came)?;
    }
    Ok(())
}

async fn response(id: &str, params: &Value, expect: &Value) -> Result<(), String> {
    let pod = json!({"name": "192.168.1.1:8000", "waiting_queue": 0, "kv_cache_usage": 0.1});
    let world = world(default_tree(), &[pod], false).await;
    let mut stream = world.ask(&[], None, &[r#"{"prompt":"x"}"#]).await;
    stream.placed().await;
    stream.body().await;
    let content_type = params["content_type"].as_str().unwrap_or_default();
    stream
        .say(response_headers("200", &[("content-type", content_type)], false))
        .await;
    stream.response_head().await;
    let chunks: Vec<_> = params["chunks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let ends_by_itself = chunks.last().is_some_and(|last| last.is_empty());
    for (number, chunk) in chunks.iter().enumerate() {
        let ends = ends_by_itself && number + 1 == chunks.len();
        stream.say(response_body(*chunk, ends)).await;
    }
    if !ends_by_itself {
        stream.say(response_body("", true)).await;
    }
    let (body, pieces) = stream.body_in_pieces().await;
    check("body", &String::from_utf8(body).unwrap(), &chunks.concat())?;
    if let Some(out) = expect["out_body"].as_str() {
        check("body", &chunks.concat().as_str(), &out)?;
    }
    if let Some(expected) = expect["out_chunks"]
        .as_u64()
        .filter(|_| DEVIATIONS.iter().all(|(other, _)| *other != id))
    {
        check("pieces", &(pieces as u64), &expected)?;
    }
    Ok(())
}
