//! When is a tree sound?

use std::fmt;
use std::sync::Arc;

use super::context::{Reads, Signals};
use super::node::{Gate, Kind, Node, NodeId};

/// A checked tree: every way through it ends in a decision.
#[derive(Debug)]
pub struct Tree {
    signals: Signals,
    root: Node,
    reads: Reads,
    titles: Vec<Arc<str>>,
    /// Which of them only hold others.
    lists: Vec<bool>,
}

/// What is wrong at one place of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFault {
    /// Where: the node's number in the order of the tree.
    pub node: NodeId,
    /// What the node is.
    pub title: String,
    /// What is wrong, and how to mend it.
    pub problem: &'static str,
}

/// All that is wrong with a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeFaults(pub Vec<TreeFault>);

impl fmt::Display for TreeFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(
                f,
                "{separator}node {} ({}): {}",
                fault.node.get(),
                fault.title,
                fault.problem
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for TreeFaults {}

impl Tree {
    /// The deepest that nodes may stand in each other.
    pub const MAX_DEPTH: usize = 64;

    /// Numbers the nodes and checks them.
    ///
    /// # Errors
    /// Every fault at once: a way through that ends without a decision, a node after a decision, an empty `first_of` or
    /// `split`, weights that are all zero, more than [`MAX_DEPTH`](Self::MAX_DEPTH) levels.
    pub fn new(signals: Signals, mut root: Node) -> Result<Self, TreeFaults> {
        let mut checks = Checks::default();
        checks.visit(&mut root, 0);
        if !decides(&root) {
            checks.fault(
                &root,
                "a way through the tree ends without a decision: end it with a leaf or `reject`",
            );
        }
        if !checks.faults.is_empty() {
            return Err(TreeFaults(checks.faults));
        }
        let reads = reads(&root).under(signals);
        Ok(Self {
            signals,
            root,
            reads,
            titles: checks.titles,
            lists: checks.lists,
        })
    }

    /// Whether signals are corrected by our own open requests.
    pub fn signals(&self) -> Signals {
        self.signals
    }

    /// The first node.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.titles.len()
    }

    /// What a node does, in a line.
    pub fn title(&self, node: NodeId) -> Option<&str> {
        self.titles.get(node.0 as usize).map(|title| &**title)
    }

    /// Whether the node only holds others, and does nothing itself.
    pub(crate) fn is_list(&self, node: NodeId) -> bool {
        self.lists.get(node.0 as usize).copied().unwrap_or(false)
    }

    pub(crate) fn shared_title(&self, node: NodeId) -> Option<Arc<str>> {
        self.titles.get(node.0 as usize).cloned()
    }

    pub(crate) fn reads(&self) -> Reads {
        self.reads
    }
}

/// The signals, then the nodes in the words of a config file, one a line, indented.
///
/// Trees that are written alike read alike. The reverse need not be so: of a closure only its name is said.
impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "signals {}", self.signals.as_str())?;
        write!(f, "{:?}", self.root)
    }
}

#[derive(Default)]
struct Checks {
    faults: Vec<TreeFault>,
    titles: Vec<Arc<str>>,
    lists: Vec<bool>,
}

impl Checks {
    fn fault(&mut self, node: &Node, problem: &'static str) {
        self.faults.push(TreeFault {
            node: node.id,
            title: node.title(),
            problem,
        });
    }

    fn visit(&mut self, node: &mut Node, depth: usize) {
        node.id = NodeId(u32::try_from(self.titles.len()).unwrap_or(u32::MAX));
        self.titles.push(node.title().into());
        self.lists.push(matches!(node.kind, Kind::List(_)));
        if depth >= Tree::MAX_DEPTH {
            // Not looked at any deeper: a bottomless tree must not become a bottomless stack.
            return self.fault(node, "the tree is more than 64 levels deep: flatten it");
        }
        self.check(node);
        for child in node.children_mut() {
            self.visit(child, depth + 1);
        }
    }

    fn check(&mut self, node: &Node) {
        match &node.kind {
            Kind::List(nodes) => {
                let last = nodes.len().saturating_sub(1);
                if nodes.iter().take(last).any(decides) {
                    self.fault(
                        node,
                        "a node stands after one that always decides: it is never reached",
                    );
                }
            }
            Kind::FirstOf(alternatives) if alternatives.is_empty() => {
                self.fault(node, "there is no alternative: give at least one");
            }
            Kind::Split { total: 0, .. } => {
                self.fault(
                    node,
                    "there is no weight: give at least one part a weight above zero",
                );
            }
            _ => {}
        }
    }
}

/// Whether each way through the node ends the walk. Depth is bounded by `visit`, which has faulted deeper trees.
fn decides(node: &Node) -> bool {
    fn within(node: &Node, depth: usize) -> bool {
        let below = |node: &Node| depth < Tree::MAX_DEPTH && within(node, depth + 1);
        match &node.kind {
            Kind::Require { .. } | Kind::Prefer { .. } => false,
            Kind::List(nodes) => nodes.last().is_some_and(below),
            Kind::Branch { .. }
            | Kind::Gate { .. }
            | Kind::When { .. }
            | Kind::FirstOf(_)
            | Kind::Split { .. }
            | Kind::ByModel { .. } => node.children().into_iter().all(below),
            Kind::Reject { .. }
            | Kind::Least(_)
            | Kind::TwoChoices(_)
            | Kind::Random
            | Kind::Rendezvous(_) => true,
        }
    }
    within(node, 0)
}

fn reads(node: &Node) -> Reads {
    let own = match &node.kind {
        Kind::Require { filter, .. } | Kind::Prefer { filter } | Kind::Branch { when: filter, .. } => {
            filter.reads()
        }
        Kind::Gate {
            gate: Gate::Any(filter) | Gate::All(filter),
            ..
        } => filter.reads(),
        Kind::Gate {
            gate: Gate::MeanBelow(cost, _),
            ..
        }
        | Kind::Least(cost)
        | Kind::TwoChoices(cost) => cost.reads(),
        Kind::When { when, .. } => when.reads(),
        _ => Reads::NONE,
    };
    node.children()
        .into_iter()
        .map(reads)
        .fold(own, |all, one| all | one)
}
