//! Paddler sends each LLM request to the upstream that will answer it soonest, and can say why.
//!
//! ```text
//! statuses:  engine -> StatusSource -> StatusBoard (one writer) -> Snapshot, published
//!                                                                      |
//! requests:  bytes -> Facts -> candidates -> tree of Filters -> pick -> Lease -> forward -> answer (holds the lease)
//! ```
//!
//! Two flows, and they meet once: at the pick. A pick is a function of a [`Snapshot`](status::Snapshot), our own counters
//! as read once, the [`Facts`](request::Facts) of the request, the time and a seed. It does no I/O, takes no lock and
//! allocates nothing in the steady state. Everything slow is a source of statuses.
//!
//! # The map
//!
//! | module | the question it answers |
//! |---|---|
//! | [`request`] | What is asked? |
//! | [`upstream`] | Where can a request go, and what is open there? |
//! | [`source`] | How does each engine say how it is? |
//! | [`status`] | How are the upstreams? |
//! | [`health`] | Who is sent no work for now, though it is there? |
//! | [`schedule`] | Who gets the request? |
//! | [`queue`] | Who waits, and who is next? |
//! | [`config`] | What did the user write, and what does it come to? |
//! | `forward` | How does a request get there and its answer back? (feature `proxy`) |
//! | `agent` | Who tells of an engine from beside it? (feature `proxy`) |
//! | `observe` | What can be seen from outside? (feature `proxy`) |
//! | `manage` | What does an operator look at and change while it serves? (feature `manage`) |
//! | [`scaling`] | How does the cost grow, and what breaks first? (a page, no code) |
//!
//! # Features
//!
//! | feature | adds | by default |
//! |---|---|---|
//! | (none) | the decision core: no runtime, no HTTP | |
//! | `proxy` | forwarding over HTTP/1.1, polling of engines, the router | yes |
//! | `http2` | HTTP/2 with upstreams and clients | |
//! | `tls` | TLS with upstreams and clients (rustls, ring) | |
//! | `keys` | API keys of clients, held as hashes | |
//! | `manage` | what a management API shows: models, leases, queue, tree, a feed of changes, decisions and their replay | |
//! | `decompress` | compressed bodies of requests are read for their model; without it they are refused | |
//! | `export` | an access log, StatsD, spans for OpenTelemetry | |
//! | `yaml` | config and trees written as YAML | |
//!
//! # Only decide
//!
//! Who forwards requests himself feeds a board and asks for a lease:
//!
//! ```
//! use paddler_core::Moment;
//! use paddler_core::request::Facts;
//! use paddler_core::schedule::{Ask, Scratch, trees};
//! use paddler_core::status::{Report, StatusBoard, StatusEvent};
//! use paddler_core::upstream::{Models, ModelEntry, UpstreamSpec};
//!
//! let now = Moment::ZERO;
//! let mut board = StatusBoard::new(trees::gateway());
//! for (id, model) in [("a", "llama"), ("b", "qwen")] {
//!     let spec = UpstreamSpec::new(id, "http://127.0.0.1:8080")?.models(Models::Listed(vec![ModelEntry::new(model)]));
//!     board.apply(StatusEvent::Upsert(spec), now);
//! }
//! let snapshot = board.publish(now);
//!
//! let facts = Facts::new().model("qwen");
//! let mut lease = snapshot.reserve(&Ask::new(&facts, now, 42), &mut Scratch::default(), &mut ()).unwrap();
//! assert_eq!(lease.upstream().as_str(), "b");
//! lease.sent();
//! // ... forward the request; when the answer has come to its end:
//! lease.complete();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # A filter of one's own
//!
//! ```
//! use paddler_core::Moment;
//! use paddler_core::request::Facts;
//! use paddler_core::schedule::{Ask, Explanation, Node, Scratch, Signals, Tree, filter_fn};
//! use paddler_core::status::{StatusBoard, StatusEvent};
//! use paddler_core::upstream::UpstreamSpec;
//!
//! let green = filter_fn("green", |cx, upstream| cx.spec(upstream).labels.get("power").is_some_and(|p| p == "solar"));
//! let tree = Tree::new(Signals::Corrected, Node::list([Node::prefer(green), Node::random()]))?;
//! let mut board = StatusBoard::new(tree);
//! for (id, power) in [("a", "coal"), ("b", "solar")] {
//!     let spec = UpstreamSpec::new(id, "http://127.0.0.1:8080")?.label("power", power);
//!     board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
//! }
//! let snapshot = board.publish(Moment::ZERO);
//!
//! // The same walk, with somebody looking on, says why.
//! let mut why = Explanation::default();
//! let facts = Facts::new();
//! let outcome = snapshot.pick(&Ask::new(&facts, Moment::ZERO, 7), &mut Scratch::default(), &mut why);
//! assert_eq!(snapshot.ids(&outcome)[0].as_str(), "b");
//! assert_eq!(why.steps[0].removed[0].0.as_str(), "a");
//! assert_eq!(why.summary(snapshot.tree()), "prefer green 1 of 2, random -> b");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With a state or a reason of its own it is a type: [`Filter`](schedule::Filter). To name it in a config file:
//! [`config::Registry`]. What leaves those of least cost is a [`Cost`](schedule::Cost), or a closure in
//! [`cost_fn`](schedule::cost_fn). Both are asked of one upstream at a time, where those that are here look at 64 at once.
//!
#![cfg_attr(
    feature = "proxy",
    doc = r#"# Forward, too

A [`Router`](forward::Router) is a service for hyper, tower and axum:

```
use std::sync::Arc;
use paddler_core::Clock;
use paddler_core::forward::{Body, Router, RouterOptions};
use paddler_core::schedule::trees;
use paddler_core::status::{FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::{UpstreamSpec, http::HttpConnect};

# #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
let clock = Clock::new();
let upstreams = FixedList::new([UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080")?]);
let (board, connect) = (StatusBoard::new(trees::gateway()), Arc::new(HttpConnect::default()));
let statuses = StatusLoop::start(board, vec![Box::new(upstreams)], connect, None, clock);
let router = Router::new(statuses.published(), clock, RouterOptions::default());

let request = http::Request::post("/v1/chat/completions").body(Body::from("{\"model\": 7}".to_owned()))?;
let response = router.handle(request).await;
assert_eq!(response.status(), 400, "a model is named by a string");
# Ok(()) }
```

# What you can put in

| to | put |
|---|---|
| check keys by a service of your own | an [`Authorise`](forward::Authorise) in [`RouterOptions::keys`](forward::RouterOptions::keys) |
| say a request's priority, tenant or session | an [`Annotate`](forward::Annotate) in [`RouterOptions::annotate`](forward::RouterOptions::annotate) |
| ask for another model than the body names | the same: the model that it sets |
| allow a request some upstreams only | an [`Only`](upstream::Only) among its extensions |
| send requests in a way of your own | an [`Upstream`](upstream::Upstream) and a [`Connect`](upstream::Connect); what you want there of a request rides in [`Carried`](upstream::Carried) |
| say when a failing upstream is left out (numbers, no hook) | [`BoardOptions::health`](status::BoardOptions::health); later [`StatusLoop::set_health`](status::StatusLoop::set_health) |
| say how often a request is sent again (numbers, no hook) | [`RouterOptions::retry`](forward::RouterOptions::retry) |
| send requests yourself, and let them wait in the router's queue | nothing: call [`Router::acquire`](forward::Router::acquire) |
| have all that done by a thread, in a program without a runtime | nothing: start a [`Background`](forward::Background) |
| take an upstream out for a while | [`StatusLoop::set_draining`](status::StatusLoop::set_draining) |
| change the list of upstreams | a [`MemberList`](status::MemberList) |
| let engines tell of themselves | [`Agents`](agent::Agents) behind a listener; an [`Agent`](agent::Agent) beside the engine, or in its process |
| tell yourself how an upstream is | a [`StatusSource`](status::StatusSource), with [`Unpolled`](status::Unpolled) on its specs: the router is not ready before it has told |
| keep the last decisions, and write them down for a replay | a `Decisions` (feature `manage`) in [`RouterOptions::telemetry`](forward::RouterOptions::telemetry) |
| read all of it from a config file | [`Config::read`](config::Config::read), then its `router_options()`, `board_options()`, `poll_options()` and `http_options()` |
| connect, accept, encrypt in a way of your own | a [`Dial`](upstream::http::Dial), an [`Accept`](forward::Accept), `Tls` (feature `tls`) |

# Test what you build

Each way out and in can be replaced, so that a test needs no real network, engine or time:

| instead of | put |
|---|---|
| connections to upstreams, for requests and polls | a [`Dial`](upstream::http::Dial), with [`HttpConnect::dial`](upstream::http::HttpConnect::dial) |
| the listener | an [`Accept`](forward::Accept) |
| time | tokio's paused clock: [`Clock`] follows it |
| chance | [`RouterOptions::seed`](forward::RouterOptions::seed) |
| statuses | a [`StatusSource`](status::StatusSource) that tells what the test wants |
| engines | the simulated engine `paddler-engine` of this repository: faults on command, checksums, a journal of what became of each request; `Engine::start` binds a real socket |

With the first two over a simulated network (`turmoil` or another), router, pollers, engines and clients run in one thread and
in simulated time, through partitions, slow links, held packets and crashes, and the same seed gives the same run.
`tests/network` of this crate does so; its `world.rs` is the set-up, in 150 lines.
"#
)]

#[cfg(feature = "proxy")]
pub mod agent;
#[cfg(feature = "proxy")]
mod clock;
pub mod config;
#[cfg(feature = "proxy")]
pub mod forward;
pub mod health;
#[cfg(feature = "manage")]
pub mod manage;
mod moment;
#[cfg(feature = "proxy")]
pub mod observe;
#[cfg(feature = "tls")]
mod pem;
pub mod queue;
pub mod request;
#[cfg(doc)]
pub mod scaling;
pub mod schedule;
pub mod source;
pub mod status;
pub mod upstream;

#[cfg(feature = "proxy")]
pub use clock::Clock;
pub use moment::Moment;

/// The README's example, so that it is compiled and run with the tests.
#[cfg(all(doctest, feature = "proxy"))]
#[doc = include_str!("../../README.md")]
struct Readme;
