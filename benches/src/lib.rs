//! What does a decision cost, and what does the program stand?
//!
//! What a decision costs stands in `benches/`:
//!
//! ```sh
//! cargo bench -p paddler-benches --bench scheduling -- pick/seed/affinity/1000
//! ```
//!
//! What was to be reached, beside what is, and how cost grows with upstreams, models, filters and bodies:
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin goals
//! ```
//!
//! That it does not grow unseen is checked by counting instructions and allocations, whatever else the machine does:
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin gates
//! ```
//!
//! What the program stands is tried with all parts as processes of their own:
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin chaos -- --seconds 600
//! cargo run --release -p paddler-benches --bin streams -- --streams 9500 --seconds 300
//! ```
//!
//! What the router costs beside nginx, HAProxy, Envoy and other routers is measured by `--bin proxies`; figures stand in the README.
//! What the endpoint picker adds to a request through Envoy is measured by `--bin picker`, which says how.

pub mod baseline;
pub mod bodies;
pub mod harness;
pub mod pages;
pub mod pools;
