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
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    #[pymodule_export]
    use crate::board::Board;
    #[pymodule_export]
    use crate::callables::Candidate;
    #[pymodule_export]
    use crate::facts::Facts;
    #[pymodule_export]
    use crate::lease::Lease;
    #[pymodule_export]
    use crate::reports::{Report, read_vllm};
    #[pymodule_export]
    use crate::router::{Router, Waiting};
    #[pymodule_export]
    use crate::specs::Upstream;
    #[pymodule_export]
    use crate::tree::Tree;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        // What runs in the background ends before the interpreter does, and is not there in a child.
        let stop = wrap_pyfunction!(crate::running::stop_all, module)?;
        py.import("atexit")?.call_method1("register", (stop,))?;
        let os = py.import("os")?;
        if os.hasattr("register_at_fork")? {
            let hooks = PyDict::new(py);
            hooks.set_item(
                "after_in_child",
                wrap_pyfunction!(crate::running::forked, module)?,
            )?;
            os.call_method("register_at_fork", (), Some(&hooks))?;
        }
        Ok(())
    }
}
