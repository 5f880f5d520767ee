//! How is a node written, and where does a way through the tree end without a decision?

use std::sync::Arc;

use super::Compiler;
use super::filter::FILTERS;
use crate::config::read::{At, Fields, Path};
use crate::config::suggest;
use crate::config::value::{Kind, Place, quoted};
use crate::schedule::filters::present;
use crate::schedule::{Condition, Gate, Node, Signals, Tree};

/// The keys that say what a node does.
const HEADS: &[&str] = &[
    "require", "prefer", "branch", "gate", "when", "first_of", "split", "by_model", "reject", "pick",
];

/// The keys that go with the one that says what a node does.
fn belongings(head: &str) -> &'static [&'static str] {
    match head {
        "branch" | "gate" | "when" => &["then", "else"],
        "require" | "by_model" => &["else"],
        _ => &[],
    }
}

/// Where a node stands.
#[derive(Clone)]
pub(super) struct Spot<'v> {
    path: Path<'v>,
    place: Option<Place>,
    /// Of a list: the first node that is never reached, since the one before it always decides.
    unreached: Option<Box<Spot<'v>>>,
}

impl<'v> From<&At<'v>> for Spot<'v> {
    fn from(at: &At<'v>) -> Self {
        Self {
            path: at.path.clone(),
            place: at.place,
            unreached: None,
        }
    }
}

/// A node, with where it came from.
pub(super) struct Built<'v> {
    pub(super) node: Node,
    /// Where it and the nodes below stand, in the order in which a tree numbers them.
    pub(super) spots: Vec<Spot<'v>>,
    /// The ends of ways through it that do not decide, and what to do there.
    pub(super) open: Vec<(Spot<'v>, &'static str)>,
}

const DECIDE: &str = "end it with `pick` or `reject`";

impl<'v> Built<'v> {
    /// A node without others below.
    pub(super) fn leaf(node: Node, at: &At<'v>) -> Self {
        Self {
            node,
            spots: vec![at.into()],
            open: Vec::new(),
        }
    }

    /// A node that goes on to the next.
    pub(super) fn step(node: Node, at: &At<'v>) -> Self {
        Self {
            open: vec![(at.into(), DECIDE)],
            ..Self::leaf(node, at)
        }
    }

    /// In the place of a node that is faulty, so that the others can be checked. It decides where it is the last.
    pub(super) fn stand_in(at: &At<'v>, last: bool) -> Self {
        if last {
            Self::leaf(Node::random(), at)
        } else {
            Self::step(Node::prefer(present()), at)
        }
    }

    /// Splits the nodes from where they are; the spots begin with that of the node above.
    pub(super) fn apart(at: &At<'v>, parts: Vec<Self>) -> (Vec<Node>, Self) {
        let mut above = Self::leaf(Node::random(), at);
        let mut nodes = Vec::with_capacity(parts.len());
        for part in parts {
            nodes.push(part.node);
            above.spots.extend(part.spots);
            above.open.extend(part.open);
        }
        (nodes, above)
    }
}

impl Compiler<'_> {
    pub(super) fn tree(&mut self, at: &At<'_>, signals: Signals) -> Option<Tree> {
        let mut built = self.node(at, true);
        let open = std::mem::take(&mut built.open);
        for (spot, mend) in &open {
            let problem = "a way through the tree ends here without a decision";
            self.faults
                .add(&spot.path, spot.place, problem, Some((*mend).into()));
        }
        if !open.is_empty() {
            // Each such end has its fault with its place. Let the tree decide, so that it is checked for other faults.
            let (nodes, mut above) = Built::apart(at, vec![built, Built::leaf(Node::random(), at)]);
            above.node = Node::list(nodes);
            built = above;
        }
        let Built { node, spots, .. } = built;
        match Tree::new(signals, node) {
            Ok(tree) => Some(tree),
            Err(faults) => {
                for fault in faults.0 {
                    let spot = usize::try_from(fault.node.get())
                        .ok()
                        .and_then(|id| spots.get(id));
                    let spot = spot.cloned().unwrap_or_else(|| at.into());
                    let spot = spot.unreached.as_deref().unwrap_or(&spot);
                    self.faults.add(&spot.path, spot.place, fault.problem, None);
                }
                None
            }
        }
    }

    /// `last`: whether it should decide.
    pub(super) fn node<'v>(&mut self, at: &At<'v>, last: bool) -> Built<'v> {
        if self.faults.notes() {
            self.note_nodes(at);
        }
        let built = match &at.value.kind {
            Kind::List(_) => self.sequence(at, last),
            Kind::Map(_) => self.headed(at, last),
            Kind::String(text) => self.bare(at, text),
            _ => at.wrong(self.faults, "a node"),
        };
        built.unwrap_or_else(|| Built::stand_in(at, last))
    }

    /// Notes each way to write a node.
    fn note_nodes(&mut self, at: &At<'_>) {
        let Some(at) = at.refer("node", self.faults) else {
            return;
        };
        for one in at.list(self.faults).into_iter().flatten() {
            self.node(&one, true);
        }
        for head in HEADS {
            if let Some(at) = at.refer(head, self.faults) {
                self.headed_by(head, &at, true);
            }
        }
    }

    fn bare<'v>(&mut self, at: &At<'v>, text: &str) -> Option<Built<'v>> {
        let mend = match text {
            "random" => "write `pick: random`".into(),
            "gateway" | "balancer" | "seed" => {
                "a built-in tree is the whole tree: it cannot be a part of one".into()
            }
            _ if FILTERS.contains(&text) || self.registry.filters().contains_key(text) => {
                format!("write `require: {text}` or `prefer: {text}`")
            }
            _ => format!("write a key: {}", HEADS.join(", ")),
        };
        at.fault_mend(self.faults, format!("{} alone is not a node", quoted(text)), mend);
        None
    }

    fn sequence<'v>(&mut self, at: &At<'v>, last: bool) -> Option<Built<'v>> {
        let list = at.list(self.faults)?;
        let end = list.len().saturating_sub(1);
        let mut parts: Vec<_> = Vec::with_capacity(list.len());
        for (index, one) in list.iter().enumerate() {
            parts.push(self.node(one, last && index == end));
        }
        let decided = parts.iter().take(end).position(|part| part.open.is_empty());
        let unreached = decided.and_then(|index| list.get(index + 1));
        // Only the end of the last one is an end of the list.
        parts.iter_mut().take(end).for_each(|part| part.open.clear());
        let empty = parts.is_empty();
        let (nodes, above) = Built::apart(at, parts);
        let mut built = Built {
            node: Node::list(nodes),
            ..above
        };
        built.spots[0].unreached = unreached.map(|at| Box::new(at.into()));
        if empty {
            built.open.push((at.into(), DECIDE));
        }
        Some(built)
    }

    /// A node by the one key that says what it does.
    fn headed<'v>(&mut self, at: &At<'v>, last: bool) -> Option<Built<'v>> {
        let head = self.head(at)?;
        self.headed_by(head, at, last)
    }

    fn headed_by<'v>(&mut self, head: &'static str, at: &At<'v>, last: bool) -> Option<Built<'v>> {
        let mut fields = at.fields(self.faults)?;
        let built = match fields.need(head, self.faults) {
            Some(inner) => self.node_of(head, at, &inner, &mut fields, last),
            None => None,
        };
        // What belongs to the node is no unknown key, also where its head could not be read.
        for name in belongings(head) {
            fields.take_any(name);
        }
        fields.end(self.faults);
        built
    }

    /// The one key that says what the node does.
    fn head(&mut self, at: &At<'_>) -> Option<&'static str> {
        let keys = at.pairs(self.faults)?;
        let heads = HEADS.iter().copied();
        let heads: Vec<_> = heads
            .filter(|head| keys.iter().any(|(key, _)| key.text == *head))
            .collect();
        match heads.as_slice() {
            [head] => return Some(head),
            [first, second, ..] => {
                let problem = format!("`{first}` and `{second}` are two nodes");
                at.fault_mend(self.faults, problem, "write them as a list, one node each");
            }
            [] => match keys
                .iter()
                .find(|(key, _)| key.text != "then" && key.text != "else")
            {
                Some((key, under)) => {
                    let problem = format!("{} is not a node", quoted(&key.text));
                    let mend = suggest::mend(&key.text, HEADS);
                    self.faults.add(&under.path, key.place, problem, mend);
                }
                None => {
                    let mend = format!("write one of {}", HEADS.join(", "));
                    at.fault_mend(self.faults, "no key says what this node does", mend);
                }
            },
        }
        None
    }

    fn node_of<'v>(
        &mut self,
        head: &str,
        at: &At<'v>,
        inner: &At<'v>,
        fields: &mut Fields<'v>,
        last: bool,
    ) -> Option<Built<'v>> {
        match head {
            "require" => self.require(at, inner, fields),
            "prefer" => Some(Built::step(Node::prefer(self.filter(inner)?), at)),
            // Without its question a node is checked all the same, with another in its place.
            "branch" => {
                let filter = self.filter(inner).unwrap_or_else(|| Arc::new(present()));
                Some(self.fork(at, fields, last, |then, otherwise| {
                    Node::branch(filter, then, otherwise)
                }))
            }
            "gate" => {
                let gate = self.gate(inner).unwrap_or_else(|| Gate::Any(Arc::new(present())));
                Some(self.fork(at, fields, last, |then, otherwise| {
                    Node::gate(gate, then, otherwise)
                }))
            }
            "when" => {
                let condition = self.condition(inner).unwrap_or(Condition::Critical);
                Some(self.fork(at, fields, last, |then, otherwise| {
                    Node::when(condition, then, otherwise)
                }))
            }
            "first_of" => self.first_of(at, inner, last),
            "split" => self.split(at, inner, last),
            "by_model" => self.by_model(at, inner, fields, last),
            "reject" => self.reject(at, inner),
            _ => Some(Built::leaf(self.pick(inner)?, at)),
        }
    }
}
