//! How does a Python process decide where a request goes?
//!
//! By the same core as every other host: this crate converts types and calls `paddler-core`. What stands in Python is in
//! `python/paddler`: exceptions, explanations, the builders of nodes, and the part of waiting that belongs to a thread or an
//! event loop.
//!
//! | file | the question it answers |
//! |---|---|
//! | `board` | Who tells what is known of the upstreams? |
//! | `shared` | What do a board, its routers and its leases have in common? |
//! | `running` | What runs in the background? |
//! | `router` | How is one asked for? |
//! | `asked`, `facts` | What is asked? |
//! | `models` | What is meant by the name of a model that is asked for? |
//! | `lease` | How does a request's sender say how far it is? |
//! | `tree`, `value` | How does a tree come from Python? |
//! | `callables` | How does the tree ask a function written in Python? |
//! | `specs`, `reports` | How does Python write an upstream, and what it says? |
//! | `refuse` | Why did it go there, or nowhere? |

mod asked;
mod board;
mod callables;
mod facts;
mod lease;
mod models;
mod refuse;
mod reports;
mod router;
mod running;
mod shared;
mod specs;
mod tree;
mod value;

#[pyo3::pymodule]
mod _paddler {
    #[pymodule_export]
    use crate::board::Board;
    #[pymodule_export]
    use crate::callables::Candidate;
    #[pymodule_export]
    use crate::facts::Facts;
    #[pymodule_export]
    use crate::lease::Lease;
    #[pymodule_export]
    use crate::models::ModelRules;
    #[pymodule_export]
    use crate::reports::{Report, read_vllm};
    #[pymodule_export]
    use crate::router::{Router, Waiting};
    #[pymodule_export]
    use crate::running::{forked, forks, stop_all};
    #[pymodule_export]
    use crate::specs::Upstream;
    #[pymodule_export]
    use crate::tree::Tree;

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "it is Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
