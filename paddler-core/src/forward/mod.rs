//! How does a request get to the upstream and its answer back?
//!
//! One pipeline for every route: `admission` judges who asks for what, `intake` reads and scans the body, `waiting` finds
//! a place for it, for another model too (`fallback`), `attempt` sends it and `sending` says whether again, `relay` passes the answer on and holds the lease
//! until its end, and `metered` tells whoever pays what it used. `router::passage` strings them together, in [`Router`].
//! [`serve`] puts it behind a listener: `accept` lets clients in, `serving` speaks with one of them.
//!
//! | to look for | see |
//! |---|---|
//! | what a request says of itself | `headers`, `asked` (headers of our own), `vetting` (what two servers could read in two ways), `decode`, `peer` |
//! | whose it is, and what that key opens | `keys`, `rights`, `permit`, `rate` |
//! | what goes with it | `trace`, `forwarded`, `timeouts`, `held` (its body) |
//! | what comes back | `body`, `refusal`, `local` (answers of our own), `usage` (tokens), `renamed` (the model's name), `upgrade` (WebSockets) |
//! | the listener | `server`, `line` (one connection), `lane` (events), `preface`, `http2`, `tls`, `peer` |
//!
//! # The words of the wire
//!
//! ## Why a request was refused
//!
//! In `x-paddler-reason`, in the error's `code` where the dialect has one, in `paddler_refusals_total` and, at level debug, in
//! the log.
//!
//! | reason | status | means, and how to mend it |
//! |---|---|---|
//! | `bad_path`, `bad_host`, `bad_method`, `bad_header` | 400 | that part of the head cannot be read, or in two ways; the message says which |
//! | `unexpected_body`, `trailers` | 400 | a body where engines read none, or fields after it: send it without |
//! | `malformed_body` | 400 | no JSON, two models, a form that two servers could read in two ways, or not compressed as `Content-Encoding` says |
//! | `broken_body` | 400 | the body ended before its end |
//! | `websocket` | 400, 403 | it does not begin with GET; they are closed (`websockets: open`) |
//! | `api_key` | 401 | no key, or one that is not known |
//! | `admin_path` | 403 | the path shows or changes the inside of an engine (`admin_paths: open`) |
//! | `model_not_allowed` | 403 | the key does not open this model |
//! | `context_length_exceeded` | 400 | the prompt surely is longer than the context of each upstream with the model; the message says by how much |
//! | `not_capable` | 404 | no upstream with the model can do such work, or take images or sounds (`capabilities`) |
//! | `model_not_found` | 404 | no upstream has it; the message names those that are known |
//! | `connect` | 405 | this is not a forward proxy |
//! | `slow_body` | 408 | the body came too slowly (`limits.body_idle`) |
//! | `body_too_large` | 413 | more than `limits.body` |
//! | `content_type`, `content_encoding` | 415 | its model cannot be read: send JSON, uncompressed or as gzip, deflate, zstd or br, and files as a form (`multipart/form-data`), uncompressed |
//! | `foreign_host` | 421 | asked in absolute form under a name that is not ours (`server_names`) |
//! | `key_rate`, `key_tokens`, `key_concurrency` | 429 | the key's allowance is used up: wait as long as `Retry-After` says |
//! | `buffers_full` | 429 | all bodies together take `limits.buffered_bodies`; the slowest to come in give way first |
//! | `queue_full`, `evicted` | 429 | more would wait than may (`queue.max_requests`); evicted: others came first |
//! | `slots_busy`, `queue_deep`, `kv_cache_full`, `no_adapter_room` | 429 | nobody had room in time (`queue.max_wait`) |
//! | `contended` | 429 | the same: others came first, or what was free was held back for one who needs more (`paddler_upstream_held_back`) |
//! | `grpc_alone` | 415 | of the endpoint picker: Envoy asks it, by gRPC, and clients ask Envoy |
//! | `answer_too_large` | 502 | of the endpoint picker: a piece of an answer is larger than a message may be (4 MiB) |
//! | `too_many_streams` | 429 | of the endpoint picker: as many requests are under way as may be (`limits.connections`) |
//! | `upstreams_busy` | 429 | each upstream that could serve it asks to be left alone for now |
//! | `filtered`, `rejected` | 429 | a filter of the host's, or a `reject` in the tree, whose own words stand here if they can |
//! | `too_many_headers` | 431 | more than 100 fields in its head, over HTTP/2; over HTTP/1.1 the status alone says so |
//! | `filter_failed` | 500 | a filter of the host's went wrong |
//! | `no_upgrade` | 501 | the host's server lets no WebSocket through |
//! | `transfer_encoding` | 501 | another transfer coding than chunked |
//! | `upstream_broke` | 502 | it was sent, and no answer came back, or one that is not HTTP/1.1; it may have been worked on |
//! | `upstream_key` | 502 | an upstream refuses the key that it gets from here (401, 403), and nobody else takes the request: put a good one into its `api_key_file` |
//! | `suspect_request` | 502 | the same twice: the request itself may be the cause |
//! | `body_not_kept` | 502, 503 | it would have been sent again, had there been memory to keep its body; also beside an upstream's own answer |
//! | `no_upstream`, `unhealthy`, `never_heard`, `stale` | 503 | nobody is there, able to serve, or known to be, in time (`queue.max_wait_starting`) |
//! | `draining` | 503 | the operator has drained each upstream that serves the model (`queue.max_wait`): let one back in |
//! | `models_unknown` | 503 | nobody is known to have the model, and some have not told yet |
//! | `not_labelled`, `not_in_subset`, `excluded` | 503 | the tree, the host or what was tried already leaves nobody |
//! | `unreachable`, `upstream_refused` | 503 | no connection could be made; an upstream refused, and its answer could not be read |
//! | `attempts` | 503 | it was sent `retry.attempts` times for each model, each time in vain |
//! | `stopping` | 503 | of `/health`: the router is going away |
//! | `first_byte_timeout`, `whole_timeout` | 504 | no answer in time (`timeouts`) |
//! | `loop` | 508 | an upstream leads back to this router |
//! | `upstream_broke_off`, `upstream_idle` | in a stream | its last event: the answer broke off or went silent; so with both times out above |
//!
//! Where routers stand behind routers, `buffers_full`, `no_upstream` and `stopping` are about the router as a whole: they
//! count as a 429 or 503 of any upstream. With every other word it has answered, and is neither paused nor ejected: the next
//! request may have another model. Whether it can serve any is what its `/health` says.
//!
//! ## Headers of requests
//!
//! | header | from whom | form | says |
//! |---|---|---|---|
//! | `x-paddler-max-wait` | anybody | seconds, or a number with ms, s, m or h; 0: not at all | wait no longer than this; never longer than `queue` allows |
//! | `x-paddler-timeout-first-byte`, `x-paddler-timeout-idle`, `x-paddler-timeout-whole` | anybody | the same, above 0 | be no later than this; never later than `timeouts` allow |
//! | `x-paddler-priority` | `trusted_peers` | `high` or `critical` (1), `standard` (0), `sheddable` (-1), or a whole number | above 0 is served first, below 0 may be shed |
//! | `x-paddler-tenant` | `trusted_peers` | 1 to 256 bytes | who pays: tenants share a full pool |
//! | `x-paddler-explain` | `trusted_peers`, and keys with `explain: true` | `1` | tell in the answer why it went where it went |
//! | `x-request-id` | anybody | as it is; a new one without | stands in the log, and goes to the engine and back |
//!
//! From whoever is not trusted, priority and tenant are removed; what asks for an explanation always is.
//!
//! ## Headers of answers
//!
//! | header | says |
//! |---|---|
//! | `x-paddler-reason` | why it was refused here |
//! | `x-paddler-fallback` | which model answered, where the one that was asked for had no place and [another](crate::request::Fallback) served it |
//! | `x-paddler-upstream` | which upstream answered, where `forwarding.name_upstream` says always, and where it is explained |
//! | `x-paddler-explain` | the way through the tree in a line of at most 1 KiB, where that was asked for; where nobody was found, why |
//! | `retry-after`, `retry-after-ms` | when to come again |
//! | `x-should-retry` | whether the same request may do better another time |
//! | `x-request-id`, `x-upstream-request-id` | the request's id, and the engine's own |
//!
//! ## Reasons in metrics
//!
//! | reason | in | means |
//! |---|---|---|
//! | `not_sent` | `paddler_retries_total` | no connection, or no byte was written |
//! | `closed_connection` | the same | lost in a connection that the upstream had just closed |
//! | `refused` | the same | the upstream was busy, or did not want it, or refused the key that it gets from here |
//! | `no_byte` | the same | it was sent, and no whole head of an answer came that can be read |
//! | `budget`, `attempts` | `paddler_retries_denied_total` | `retry.share` and `retry.per_second` are used up; `retry.attempts` is |
//! | `not_replayable` | the same | what it does may not be done twice |
//! | `suspect_request`, `body_not_kept` | the same | as above |
//! | `upstream_broke_off`, `upstream_idle`, `first_byte_timeout`, `whole_timeout` | `paddler_truncations_total` | as above |
//! | `tunnel_idle` | the same | neither end of a WebSocket said anything (`timeouts.tunnel_idle`) |

mod accept;
mod acquire;
mod admission;
mod again;
mod asked;
mod attempt;
mod background;
mod body;
#[cfg(feature = "decompress")]
mod decode;
mod fallback;
mod form;
mod forwarded;
mod headers;
mod held;
#[cfg(feature = "http2")]
mod http2;
mod intake;
#[cfg(feature = "keys")]
mod keys;
mod lane;
mod line;
mod local;
mod metered;
mod no_place;
mod options;
mod owners;
mod pace;
mod peer;
mod permit;
#[cfg(feature = "http2")]
mod preface;
mod rate;
mod refusal;
mod relay;
mod renamed;
mod rest;
mod rewrite;
mod rights;
mod router;
mod sending;
mod server;
mod serving;
mod shown;
mod spurious;
mod story;
#[cfg(test)]
mod tests;
mod timeouts;
#[cfg(feature = "tls")]
mod tls;
mod trace;
mod upgrade;
mod upstream_key;
mod usage;
mod vetting;
mod waiting;
mod woken;

pub use accept::{Accept, Connection, OverTls, Peer, let_in};
pub use acquire::Acquired;
pub(crate) use again::Again;
pub use asked::LONGEST_TENANT;
pub(crate) use attempt::chain;
pub use background::{Background, NotStarted, Telling, ThreadEnd, Untold};
pub use body::{Body, BoxError};
pub use headers::bearer;
pub(crate) use headers::{joined_cookies, length, lists};
#[cfg(feature = "keys")]
pub use keys::{InvalidKeys, Keys};
pub use options::{Annotate, RouterOptions, Timeouts};
pub use refusal::Refusal;
pub use rest::hear_out;
pub use rights::{Authorise, Client};
pub use router::{NodePanicked, Router, RouterFuture};
pub use server::{ServeOptions, Served, serve};
#[cfg(feature = "tls")]
pub use tls::{Tls, TlsError};
pub use vetting::drop_look_alikes;
