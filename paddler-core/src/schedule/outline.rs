//! Which nodes does a tree have, and which stands where?
//!
//! The same ways that a [picture](super::Picture) draws, as data: for a page that draws them itself.

use serde::Serialize;

use super::node::{Alternative, Kind, Node};
use super::tree::Tree;

/// A node, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OutlineNode {
    /// Its number in the order of the tree, as explanations and counters have it.
    pub node: u32,
    /// What it does, in a line.
    pub title: String,
    /// The node that it stands in. The root stands in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<u32>,
    /// Which way leads here from there, where there are several: `yes`, `no`, a share, a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub way: Option<String>,
    /// It only holds others, one after the other, and does nothing itself.
    pub list: bool,
}

impl Tree {
    /// Its nodes, each after the one that it stands in.
    ///
    /// ```
    /// use paddler_core::schedule::trees;
    ///
    /// let nodes = trees::gateway().outline();
    /// assert_eq!((nodes[0].title.as_str(), nodes[0].parent), ("list", None));
    /// assert_eq!((nodes[1].title.as_str(), nodes[1].parent), ("require model", Some(0)));
    /// ```
    pub fn outline(&self) -> Vec<OutlineNode> {
        let mut nodes = Vec::with_capacity(self.node_count());
        add(self.root(), None, None, &mut nodes);
        nodes
    }
}

fn add(node: &Node, parent: Option<u32>, way: Option<String>, into: &mut Vec<OutlineNode>) {
    let id = node.id.get();
    let list = matches!(node.kind, Kind::List(_));
    into.push(OutlineNode {
        node: id,
        title: node.title(),
        parent,
        way,
        list,
    });
    if let Kind::List(nodes) = &node.kind {
        nodes.iter().for_each(|node| add(node, Some(id), None, into));
    }
    for (way, node) in ways(node) {
        add(node, Some(id), Some(way), into);
    }
}

/// The ways that lead on from a node that has several, each with what stands at its arrow.
pub(super) fn ways(node: &Node) -> Vec<(String, &Node)> {
    match &node.kind {
        Kind::Branch { then, otherwise, .. }
        | Kind::Gate { then, otherwise, .. }
        | Kind::When { then, otherwise, .. } => vec![("yes".to_owned(), then), ("no".to_owned(), otherwise)],
        Kind::FirstOf(alternatives) => alternatives.iter().enumerate().map(alternative).collect(),
        Kind::Split { total, parts } => {
            let share = |(weight, node)| (format!("{weight} of {total}"), node);
            parts.iter().map(|(weight, node)| share((weight, node))).collect()
        }
        Kind::ByModel { models, otherwise } => {
            let named = models.iter().map(|(name, node)| (name.to_string(), node));
            named.chain([("else".to_owned(), &**otherwise)]).collect()
        }
        Kind::List(_)
        | Kind::Require { .. }
        | Kind::Prefer { .. }
        | Kind::Reject { .. }
        | Kind::Least(_)
        | Kind::TwoChoices(_)
        | Kind::Random
        | Kind::Rendezvous(_) => Vec::new(),
    }
}

/// Which of several alternatives, and after what.
fn alternative((number, one): (usize, &Alternative)) -> (String, &Node) {
    let after = match one.patience {
        Some(patience) => format!(", for {patience:?}"),
        None => String::new(),
    };
    (format!("{}{after}", number + 1), &one.node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::trees;

    #[test]
    fn every_node_is_there_once_and_stands_in_one_before_it() {
        for tree in [trees::gateway(), trees::balancer(), trees::seed()] {
            let nodes = tree.outline();
            let numbers: Vec<_> = nodes.iter().map(|node| node.node as usize).collect();
            assert_eq!(numbers, (0..tree.node_count()).collect::<Vec<_>>());
            let stands = |node: &OutlineNode| node.parent.map_or(node.node == 0, |parent| parent < node.node);
            assert!(nodes.iter().all(stands), "{nodes:?}");
            let forks = nodes
                .iter()
                .filter(|node| node.way.as_deref() == Some("yes"))
                .count();
            assert_eq!(
                forks,
                nodes
                    .iter()
                    .filter(|node| node.way.as_deref() == Some("no"))
                    .count()
            );
        }
    }
}
