//! Why did a request go where it went?

use paddler_core::schedule::{Explanation as CoreExplanation, NodeId, Tree};
use pyo3::prelude::*;

/// One filter's work on the way.
#[pyclass(frozen, module = "paddler", get_all)]
#[derive(Clone)]
pub(crate) struct Step {
    node: u32,
    title: String,
    before: usize,
    after: usize,
    removed: Vec<(String, Option<f64>)>,
    error: Option<String>,
}

#[pymethods]
impl Step {
    fn __repr__(&self) -> String {
        let Self {
            node,
            title,
            before,
            after,
            ..
        } = self;
        format!("<paddler.Step {node} `{title}` {after} of {before}>")
    }
}

/// All that a walk through the tree did.
#[pyclass(frozen, module = "paddler", get_all)]
#[derive(Clone)]
pub(crate) struct Explanation {
    summary: String,
    path: Vec<(u32, String)>,
    steps: Vec<Step>,
    survivors: Vec<String>,
    picked: Vec<String>,
    reason: Option<String>,
    outcome: &'static str,
}

impl Explanation {
    pub(crate) fn of(why: &CoreExplanation, tree: &Tree) -> Self {
        let title = |node: NodeId| tree.title(node).unwrap_or("?").to_owned();
        let names =
            |ids: &[paddler_core::upstream::UpstreamId]| ids.iter().map(ToString::to_string).collect();
        let step = |step: &paddler_core::schedule::Step| Step {
            node: step.node.get(),
            title: title(step.node),
            before: step.before,
            after: step.after,
            removed: step
                .removed
                .iter()
                .map(|(id, value)| (id.to_string(), *value))
                .collect(),
            error: step.error.clone(),
        };
        Self {
            summary: why.summary(tree),
            path: why.path.iter().map(|node| (node.get(), title(*node))).collect(),
            steps: why.steps.iter().map(step).collect(),
            survivors: names(&why.survivors),
            picked: names(&why.picked),
            reason: why.ending.as_ref().map(|ending| ending.reason.to_string()),
            outcome: why
                .ending
                .as_ref()
                .map_or("picked", |ending| ending.class.as_str()),
        }
    }
}

#[pymethods]
impl Explanation {
    fn __str__(&self) -> &str {
        &self.summary
    }

    fn __repr__(&self) -> String {
        format!("<paddler.Explanation: {}>", self.summary)
    }
}
