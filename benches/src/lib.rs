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

//! # A tree of one's own
//!
//! The pools and the clock of these figures measure any tree, with filters and costs of one's own in it:
//!
//! ```
//! use paddler_benches::harness::clock::of_each;
//! use paddler_benches::pools::{Case, pool};
//! use paddler_core::Moment;
//! use paddler_core::schedule::{Ask, Node, Scratch, Signals, Tree, cost_fn};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let least = cost_fn("waiting", |cx, upstream| cx.waiting(upstream).map(|waiting| waiting as f32));
//! let tree = Tree::new(Signals::Corrected, Node::least(least))?;
//! let case = Case::Affinity;
//! let (snapshot, _leases) = pool(tree, case, 1_000)?;
//! let (mut scratch, facts, mut seed) = (Scratch::default(), case.facts(), 0);
//! let seconds = of_each(5, || {
//!     seed += 1;
//!     let outcome = snapshot.pick(&Ask::new(&facts, Moment::ZERO, seed), &mut scratch, &mut ());
//!     assert!(outcome.picked().is_some());
//! });
//! println!("{:.0} ns of CPU time for a pick", seconds * 1e9);
//! # Ok(())
//! # }
//! ```

pub mod baseline;
pub mod bodies;
pub mod harness;
pub mod pages;
pub mod pools;
