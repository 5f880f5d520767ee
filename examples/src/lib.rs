//! Ways to use `paddler-core` in a program of one's own.
//!
//! Each is one file that starts simulated engines on loopback, shows one thing, checks it, and ends:
//! `cargo run -p paddler-examples --example NAME`.
//!
//! | name | shows | read it when |
//! |---|---|---|
//! | `embed_in_hyper` | the router behind a hyper server | there is a hyper server, or none yet |
//! | `embed_in_axum` | the router beside the routes of an axum application | there is an axum application |
//! | `only_pick` | who should get a request, and the lease on it; the request is sent by oneself | the sending is somebody else's |
//! | `custom_filter` | a filter that goes by data of one's own, on specs and on reports | Paddler has no name for what matters |
//! | `custom_source` | a source that says which upstreams there are and how they are | upstreams come from a registry, a file, a bus |
//! | `tree_by_code_and_config` | one tree, written in Rust and in YAML | the choice is to be changed |
//!
//! The simulated engine itself is in `engine/`.
