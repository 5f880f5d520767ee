//! What does a decision cost? The measurements stand in `benches/`.
//!
//! ```sh
//! cargo bench -p paddler-benches --bench scheduling -- pick/seed/affinity/1000
//! ```
