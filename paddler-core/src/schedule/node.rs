//! Which kinds of nodes does a tree have?
//!
//! Control flow is a closed enum: a new kind does not compile until the walk, the checks and the reading of config know
//! it. Judgement is open: anybody can bring a [`Filter`], a [`Cost`] or a [`Condition`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::cost::Cost;
use super::filter::Filter;
use super::outcome::{Class, Reason};

/// A node of one tree: its number in the order of the tree, the root is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The node of this number, as a host keeps it that can hold numbers alone. A tree may have no such node.
    ///
    /// ```
    /// use paddler_core::schedule::{NodeId, trees};
    ///
    /// let tree = trees::balancer();
    /// assert_eq!(tree.title(NodeId::new(1)), Some("require healthy"));
    /// assert_eq!(tree.title(NodeId::new(99)), None);
    /// ```
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// A part of a tree, made by the functions below and checked when it becomes a [`Tree`](super::Tree).
pub struct Node {
    pub(crate) id: NodeId,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    List(Vec<Node>),
    Require {
        filter: Arc<dyn Filter>,
        otherwise: Option<Class>,
    },
    Prefer {
        filter: Arc<dyn Filter>,
    },
    Branch {
        when: Arc<dyn Filter>,
        then: Box<Node>,
        otherwise: Box<Node>,
    },
    Gate {
        gate: Gate,
        then: Box<Node>,
        otherwise: Box<Node>,
    },
    When {
        when: Condition,
        then: Box<Node>,
        otherwise: Box<Node>,
    },
    FirstOf(Vec<Alternative>),
    Split {
        total: u64,
        parts: Vec<(u32, Node)>,
    },
    ByModel {
        models: BTreeMap<Arc<str>, Node>,
        otherwise: Box<Node>,
    },
    Reject {
        class: Class,
        reason: Reason,
    },
    Least(Arc<dyn Cost>),
    TwoChoices(Arc<dyn Cost>),
    Random,
    Rendezvous(Key),
}

/// A condition over the pool. It narrows nothing.
pub enum Gate {
    /// The filter leaves somebody.
    Any(Arc<dyn Filter>),
    /// The filter leaves everybody. Of nobody: no.
    All(Arc<dyn Filter>),
    /// The mean of the costs that are known is below this. None known: no.
    MeanBelow(Arc<dyn Cost>, f32),
}

/// One way out of several, tried in order.
pub struct Alternative {
    pub(crate) node: Node,
    pub(crate) patience: Option<Duration>,
}

impl Alternative {
    /// Waits for this alternative, however long, when it says `later`.
    pub fn new(node: Node) -> Self {
        Self { node, patience: None }
    }

    /// Goes on to the next alternative on `later` once the request has waited this long.
    pub fn with_patience(node: Node, patience: Duration) -> Self {
        Self {
            node,
            patience: Some(patience),
        }
    }
}

/// By what `rendezvous` hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Key {
    /// The session; without one, the tenant; without that, chance.
    Session,
    /// The tenant; without one, chance.
    Tenant,
    /// The model; without one, chance.
    Model,
}

impl Key {
    /// The word that a config file has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Tenant => "tenant",
            Self::Model => "model",
        }
    }
}

/// These, with commas between.
pub(crate) fn words(all: impl Iterator<Item = impl ToString>) -> String {
    all.map(|one| one.to_string()).collect::<Vec<_>>().join(", ")
}

impl From<Kind> for Node {
    fn from(kind: Kind) -> Self {
        Self { id: NodeId(0), kind }
    }
}

impl Node {
    /// One after the other. What narrows comes first; the last one decides.
    pub fn list(nodes: impl IntoIterator<Item = Node>) -> Self {
        Kind::List(nodes.into_iter().collect()).into()
    }

    /// Narrows; when nobody is left, the alternative ends with the class that is natural to the filter.
    pub fn require(filter: impl Filter) -> Self {
        Kind::Require {
            filter: filter.into_shared(),
            otherwise: None,
        }
        .into()
    }

    /// Narrows; when nobody is left, the alternative ends with this class.
    pub fn require_or(filter: impl Filter, otherwise: Class) -> Self {
        Kind::Require {
            filter: filter.into_shared(),
            otherwise: Some(otherwise),
        }
        .into()
    }

    /// Narrows; when nobody would be left, goes on with the set as it was.
    pub fn prefer(filter: impl Filter) -> Self {
        Kind::Prefer {
            filter: filter.into_shared(),
        }
        .into()
    }

    /// When the filter leaves somebody, `then` with those, and its end is final. Else `otherwise`, with the set as it was.
    pub fn branch(when: impl Filter, then: Node, otherwise: Node) -> Self {
        Kind::Branch {
            when: when.into_shared(),
            then: then.into(),
            otherwise: otherwise.into(),
        }
        .into()
    }

    /// When the condition over the pool holds, `then`, else `otherwise`; the set stays as it was.
    pub fn gate(gate: Gate, then: Node, otherwise: Node) -> Self {
        Kind::Gate {
            gate,
            then: then.into(),
            otherwise: otherwise.into(),
        }
        .into()
    }

    /// When the condition on the request holds, `then`, else `otherwise`.
    pub fn when(when: Condition, then: Node, otherwise: Node) -> Self {
        Kind::When {
            when,
            then: then.into(),
            otherwise: otherwise.into(),
        }
        .into()
    }

    /// The first alternative that does not end with `never` or `shed`, nor with `later` beyond its patience.
    pub fn first_of(alternatives: impl IntoIterator<Item = Alternative>) -> Self {
        Kind::FirstOf(alternatives.into_iter().collect()).into()
    }

    /// One of these, by weight; drawn once for each request, so that retries and waits keep their share.
    pub fn split(parts: impl IntoIterator<Item = (u32, Node)>) -> Self {
        let parts: Vec<_> = parts.into_iter().collect();
        let total = parts.iter().map(|(weight, _)| u64::from(*weight)).sum();
        Kind::Split { total, parts }.into()
    }

    /// By the name that is asked for or else, where that stands for another ([`ModelRules`](crate::request::ModelRules)), by the
    /// model or adapter that is meant; `otherwise` for all other names and for none.
    pub fn by_model<N: Into<Arc<str>>>(models: impl IntoIterator<Item = (N, Node)>, otherwise: Node) -> Self {
        let models = models
            .into_iter()
            .map(|(name, node)| (name.into(), node))
            .collect();
        Kind::ByModel {
            models,
            otherwise: otherwise.into(),
        }
        .into()
    }

    /// Ends the walk, also inside `first_of`.
    pub fn reject(class: Class, reason: impl Into<Arc<str>>) -> Self {
        Kind::Reject {
            class,
            reason: Reason::Rejected(reason.into()),
        }
        .into()
    }

    /// The lowest cost; ties at random.
    pub fn least(cost: impl Cost) -> Self {
        Kind::Least(cost.into_shared()).into()
    }

    /// The lower cost of two that are drawn at random (power of two choices).
    pub fn two_choices(cost: impl Cost) -> Self {
        Kind::TwoChoices(cost.into_shared()).into()
    }

    /// Any, each as likely.
    pub fn random() -> Self {
        Kind::Random.into()
    }

    /// Always the same one for the same key while it is among the candidates (highest random weight: Thaler and
    /// Ravishankar 1998). When one leaves, only its keys move.
    pub fn rendezvous(key: Key) -> Self {
        Kind::Rendezvous(key).into()
    }

    /// The number of this node in its tree.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The nodes below, in order.
    pub(crate) fn children(&self) -> Vec<&Node> {
        match &self.kind {
            Kind::List(nodes) => nodes.iter().collect(),
            Kind::Branch { then, otherwise, .. }
            | Kind::Gate { then, otherwise, .. }
            | Kind::When { then, otherwise, .. } => vec![then, otherwise],
            Kind::FirstOf(alternatives) => alternatives.iter().map(|one| &one.node).collect(),
            Kind::Split { parts, .. } => parts.iter().map(|(_, node)| node).collect(),
            Kind::ByModel { models, otherwise } => models.values().chain([&**otherwise]).collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn children_mut(&mut self) -> Vec<&mut Node> {
        match &mut self.kind {
            Kind::List(nodes) => nodes.iter_mut().collect(),
            Kind::Branch { then, otherwise, .. }
            | Kind::Gate { then, otherwise, .. }
            | Kind::When { then, otherwise, .. } => vec![then, otherwise],
            Kind::FirstOf(alternatives) => alternatives.iter_mut().map(|one| &mut one.node).collect(),
            Kind::Split { parts, .. } => parts.iter_mut().map(|(_, node)| node).collect(),
            Kind::ByModel { models, otherwise } => models.values_mut().chain([&mut **otherwise]).collect(),
            _ => Vec::new(),
        }
    }

    /// What the node does, in a line.
    pub(crate) fn title(&self) -> String {
        match &self.kind {
            Kind::List(_) => "list".into(),
            Kind::Require {
                filter,
                otherwise: None,
            } => format!("require {filter:?}"),
            Kind::Require {
                filter,
                otherwise: Some(class),
            } => format!("require {filter:?} else {class}"),
            Kind::Prefer { filter } => format!("prefer {filter:?}"),
            Kind::Branch { when, .. } => format!("branch {when:?}"),
            Kind::Gate { gate, .. } => format!("gate {gate:?}"),
            Kind::When { when, .. } => format!("when {when:?}"),
            Kind::FirstOf(alternatives) => {
                let patience = |one: &Alternative| {
                    one.patience
                        .map_or_else(|| "wait".into(), |patience| format!("patience {patience:?}"))
                };
                format!("first_of [{}]", words(alternatives.iter().map(patience)))
            }
            Kind::Split { parts, .. } => {
                let weights: Vec<_> = parts.iter().map(|(weight, _)| weight).collect();
                format!("split {weights:?}")
            }
            Kind::ByModel { models, .. } => format!("by_model [{}]", words(models.keys())),
            Kind::Reject { class, reason } => format!("reject {class} {reason}"),
            Kind::Least(cost) => format!("least {cost:?}"),
            Kind::TwoChoices(cost) => format!("two_choices {cost:?}"),
            Kind::Random => "random".into(),
            Kind::Rendezvous(key) => format!("rendezvous {}", key.as_str()),
        }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any(filter) => write!(f, "any {filter:?}"),
            Self::All(filter) => write!(f, "all {filter:?}"),
            Self::MeanBelow(cost, limit) => write!(f, "mean {cost:?} below {limit}"),
        }
    }
}

impl fmt::Debug for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alternative")
            .field("patience", &self.patience)
            .field("node", &self.node)
            .finish()
    }
}

/// The tree below this node, one line each, indented.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn lines(node: &Node, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            writeln!(f, "{:depth$}{}", "", node.title(), depth = depth * 2)?;
            node.children()
                .into_iter()
                .try_for_each(|child| lines(child, depth + 1, f))
        }
        lines(self, 0, f)
    }
}
