//! By which tree are requests routed, in every form?

use serde::Serialize;

use crate::schedule::{OutlineNode, PictureFormat, Tree};

/// A tree, in every form that it is shown in.
///
/// ```
/// use paddler_core::manage::TreeStatus;
/// use paddler_core::schedule::trees;
///
/// let shown = TreeStatus::of(&trees::balancer());
/// assert_eq!(shown.signals, "corrected");
/// assert!(shown.mermaid.starts_with("flowchart TD") && shown.text.contains("require slot"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TreeStatus {
    /// `corrected` by our own load, or as they are `reported`.
    pub signals: &'static str,
    /// Its nodes, each after the one that it stands in.
    pub nodes: Vec<OutlineNode>,
    /// A node a line, indented by how deep it stands.
    pub text: String,
    /// As a flow chart of Mermaid.
    pub mermaid: String,
    /// As a graph of Graphviz.
    pub dot: String,
}

impl TreeStatus {
    /// Shows a tree.
    pub fn of(tree: &Tree) -> Self {
        Self {
            signals: tree.signals().as_str(),
            nodes: tree.outline(),
            text: tree.to_string(),
            mermaid: tree.picture(PictureFormat::Mermaid).to_string(),
            dot: tree.picture(PictureFormat::Dot).to_string(),
        }
    }
}
