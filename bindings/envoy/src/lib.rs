//! How does Envoy ask Paddler where a request goes?
//!
//! Through ext_proc: Envoy opens one gRPC stream for each request, sends what the client sends, and goes to the address that
//! it is told. The other end of that stream is a [`Picker`]. It decides nothing itself: it gives each request to the
//! [`Router`](paddler_core::forward::Router) of `paddler-core`, whose upstreams are reached by [`EnvoyConnect`] here. So keys,
//! classes, the queue, deadlines, health, leases, usage and refusals are those of the gateway.
//!
//! ```text
//! Envoy   request headers, body ->  Picker -> Router::handle -> queue, tree, lease -> EnvoyUpstream::call
//!       <- destination, body                                                           |
//!         response headers, body -> the response of that call -> what the router makes of it -> Envoy
//! ```
//!
//! | module | the question it answers |
//! |---|---|
//! | `service` | Who may open a stream, and how is it served? |
//! | `stream` | How does one stream go from end to end? |
//! | `reader` | What does Envoy say, and in which order may it? |
//! | `exchange` | What do the reader of a stream and the router's transport share? |
//! | `transport` | How does a request get to an upstream that Envoy speaks to? |
//! | `modes` | Which bodies does Envoy show us? |
//! | `answers` | What can Envoy be told? |
//! | `heads` | What do headers become, on their way to the router and back? |
//! | `gateway` | What does the endpoint picker protocol add? |
//! | `addresses` | Where does an upstream listen, as Envoy names it? |
//! | `options` | How does a picker behave, beyond what the router does? |
//! | `counts` | What can be seen from outside? |
//! | `health` | Is it alive, and can it serve? |
//!
//! It speaks the endpoint picker protocol 1.0 of the Gateway API Inference Extension, and needs nothing of Kubernetes.
//!
//! ```no_run
//! use std::sync::Arc;
//! use paddler_core::Clock;
//! use paddler_core::forward::{RouterOptions, ServeOptions};
//! use paddler_core::schedule::trees;
//! use paddler_core::status::{FixedList, PollOptions, StatusBoard, StatusLoop};
//! use paddler_core::upstream::{UpstreamSpec, http::HttpConnect};
//! use paddler_envoy::{EnvoyConnect, Picker, PickerOptions, serve};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Clock::new();
//! let upstreams = FixedList::new([UpstreamSpec::new("gpu-1", "http://10.0.0.3:8080")?]);
//! let connect = Arc::new(EnvoyConnect::new(Arc::new(HttpConnect::default())));
//! let board = StatusBoard::new(trees::gateway());
//! let statuses = StatusLoop::start(board, vec![Box::new(upstreams)], connect, Some(PollOptions::default()), clock);
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:9002").await?;
//! let never = std::future::pending;
//! let picker = Picker::new(statuses.published(), clock, RouterOptions::default(), PickerOptions::default());
//! serve(listener, picker, ServeOptions::default(), never(), never()).await?;
//! # Ok(()) }
//! ```

mod addresses;
mod answers;
mod counts;
mod exchange;
mod gateway;
mod heads;
mod health;
mod modes;
mod options;
mod reader;
mod service;
mod stream;
mod transport;

pub use options::{GatewayHeaders, PickerOptions};
pub use service::{Picker, serve};
pub use transport::EnvoyConnect;
