//! How does a request go through the tree?
//!
//! One walk serves picks, explanations and counters; only the observer differs.

use super::candidates::CandidateSet;
use super::context::PickCx;
use super::cost::Cost;
use super::draw::{Draw, mix, stable_hash};
use super::explain::Observer;
use super::filter::{Filter, FilterError};
use super::node::{Alternative, Gate, Key, Kind, Node};
use super::outcome::{Class, Ending, Outcome, Picks, Reason};
use crate::upstream::UpstreamIndex;

/// How a node ends.
enum Flow {
    /// It has narrowed, or not; the next one goes on.
    Next,
    Picked(Picks),
    /// This alternative finds nobody.
    Ended(Ending),
    /// Nor does any other: `reject` has the last word.
    Rejected(Ending),
}

pub(crate) struct Walk<'w, 'a, O> {
    pub(crate) cx: &'w PickCx<'a>,
    pub(crate) want: usize,
    pub(crate) observer: &'w mut O,
}

impl<O: Observer> Walk<'_, '_, O> {
    pub(crate) fn run(&mut self, root: &Node, set: &mut CandidateSet<'_>) -> Outcome {
        match self.node(root, set) {
            Flow::Picked(picks) => Outcome::Picked(picks),
            Flow::Ended(ending) | Flow::Rejected(ending) => {
                self.observer.ended(self.cx, &ending);
                ending.into()
            }
            // A checked tree always decides.
            Flow::Next => Ending::new(Class::Never, Reason::Filtered, root.id).into(),
        }
    }

    fn node(&mut self, node: &Node, set: &mut CandidateSet<'_>) -> Flow {
        self.observer.entered(self.cx, node.id, set);
        match &node.kind {
            Kind::List(nodes) => self.list(nodes, set),
            Kind::Require { filter, otherwise } => self.require(node, filter, *otherwise, set),
            Kind::Prefer { filter } => {
                set.fork(
                    |copy| self.narrow(node, filter, copy).is_ok() && !copy.is_empty(),
                    |some| *some,
                );
                Flow::Next
            }
            Kind::Branch {
                when,
                then,
                otherwise,
            } => self.branch(node, when, then, otherwise, set),
            Kind::Gate {
                gate,
                then,
                otherwise,
            } => {
                let way = if self.gate(node, gate, set) {
                    then
                } else {
                    otherwise
                };
                self.node(way, set)
            }
            Kind::When {
                when,
                then,
                otherwise,
            } => {
                let way = if when.holds(self.cx) { then } else { otherwise };
                self.node(way, set)
            }
            Kind::FirstOf(alternatives) => self.first_of(alternatives, node, set),
            Kind::Split { total, parts } => {
                // Drawn from the request's own seed, not the pick's: a retry stays in its part.
                let draw = Draw::new(self.cx.facts.seed, node.id)
                    .below(usize::try_from(*total).unwrap_or(usize::MAX));
                self.node(part(parts, draw as u64, node), set)
            }
            Kind::ByModel { models, otherwise } => {
                let named = self.cx.facts.model.and_then(|name| models.get(name));
                self.node(named.unwrap_or(otherwise), set)
            }
            Kind::Reject { class, reason } => Flow::Rejected(Ending::new(*class, reason.clone(), node.id)),
            Kind::Least(_) | Kind::TwoChoices(_) | Kind::Random | Kind::Rendezvous(_) => self.leaf(node, set),
        }
    }

    fn list(&mut self, nodes: &[Node], set: &mut CandidateSet<'_>) -> Flow {
        for node in nodes {
            match self.node(node, set) {
                Flow::Next => {}
                end => return end,
            }
        }
        Flow::Next
    }

    fn narrow(
        &mut self,
        node: &Node,
        filter: &dyn Filter,
        set: &mut CandidateSet<'_>,
    ) -> Result<(), FilterError> {
        self.observer.narrowing(self.cx, node.id, set);
        let result = filter.narrow(self.cx, set);
        self.observer
            .narrowed(self.cx, node.id, filter, set, result.as_ref().err());
        result
    }

    fn require(
        &mut self,
        node: &Node,
        filter: &dyn Filter,
        otherwise: Option<Class>,
        set: &mut CandidateSet<'_>,
    ) -> Flow {
        match self.narrow(node, filter, set) {
            Err(error) => {
                let mut ending = Ending::new(Class::Never, Reason::FilterFailed, node.id);
                ending.error = Some(error);
                Flow::Ended(ending)
            }
            Ok(()) if set.is_empty() => {
                let lack = filter.lack(self.cx);
                Flow::Ended(Ending::new(otherwise.unwrap_or(lack.class), lack.reason, node.id))
            }
            Ok(()) => Flow::Next,
        }
    }

    fn branch(
        &mut self,
        node: &Node,
        when: &dyn Filter,
        then: &Node,
        otherwise: &Node,
        set: &mut CandidateSet<'_>,
    ) -> Flow {
        let taken = set.fork(
            |copy| {
                let some = self.narrow(node, when, copy).is_ok() && !copy.is_empty();
                some.then(|| self.node(then, copy))
            },
            |flow| matches!(flow, Some(Flow::Next)),
        );
        taken.unwrap_or_else(|| self.node(otherwise, set))
    }

    fn gate(&mut self, node: &Node, gate: &Gate, set: &mut CandidateSet<'_>) -> bool {
        let before = set.len();
        match gate {
            Gate::Any(filter) => set.fork(
                |copy| self.narrow(node, filter, copy).is_ok() && !copy.is_empty(),
                |_| false,
            ),
            Gate::All(filter) => set.fork(
                |copy| self.narrow(node, filter, copy).is_ok() && before > 0 && copy.len() == before,
                |_| false,
            ),
            Gate::MeanBelow(cost, limit) => {
                let known = set.iter().filter_map(|upstream| cost.cost(self.cx, upstream));
                let (sum, count) = known.fold((0.0, 0u32), |(sum, n), cost| (sum + f64::from(cost), n + 1));
                count > 0 && sum / f64::from(count) < f64::from(*limit)
            }
        }
    }

    fn first_of(&mut self, alternatives: &[Alternative], node: &Node, set: &mut CandidateSet<'_>) -> Flow {
        let mut first: Option<Ending> = None;
        let mut later: Option<Ending> = None;
        for alternative in alternatives {
            let flow = set.fork(
                |copy| self.node(&alternative.node, copy),
                |flow| matches!(flow, Flow::Next),
            );
            let ending = match flow {
                Flow::Ended(ending) => ending,
                end => return end,
            };
            if ending.class == Class::Later {
                let end = alternative
                    .patience
                    .map(|patience| self.cx.facts.arrived.saturating_add(patience));
                if end.is_none_or(|end| self.cx.now < end) {
                    let until = [end, ending.until].into_iter().flatten().min();
                    return Flow::Ended(Ending {
                        until,
                        ..first.map_or(ending, |first| Ending {
                            class: Class::Later,
                            ..first
                        })
                    });
                }
                later.get_or_insert_with(|| ending.clone());
            }
            first.get_or_insert(ending);
        }
        // Nobody: the first reason counts; but while one of them may do better later, the request waits.
        let mut ending = first.unwrap_or_else(|| Ending::new(Class::Never, Reason::Filtered, node.id));
        if later.is_some() {
            ending.class = Class::Later;
        }
        Flow::Ended(ending)
    }

    fn leaf(&mut self, node: &Node, set: &mut CandidateSet<'_>) -> Flow {
        if set.is_empty() {
            return Flow::Ended(Ending::new(Class::Later, Reason::NoUpstream, node.id));
        }
        self.observer.choosing(self.cx, node.id, set);
        let mut draw = Draw::new(self.cx.seed, node.id);
        let mut picks = Picks::default();
        // Each rank is chosen among those that the ranks before it have left.
        while picks.len() < self.want {
            let chosen = match &node.kind {
                Kind::Least(cost) => self.least(&**cost, set, &mut draw),
                Kind::TwoChoices(cost) => self.two_choices(&**cost, set, &mut draw),
                Kind::Rendezvous(key) => self.rendezvous(*key, set, &mut draw),
                _ => set.nth(draw.below(set.len())),
            };
            let Some(chosen) = chosen else { break };
            picks.push(chosen);
            set.remove(chosen);
        }
        self.observer.picked(self.cx, node.id, &picks);
        Flow::Picked(picks)
    }

    fn least(&self, cost: &dyn Cost, set: &mut CandidateSet<'_>, draw: &mut Draw) -> Option<UpstreamIndex> {
        let unknown = if set.iter().all(|upstream| cost.cost(self.cx, upstream).is_some()) {
            0.0
        } else {
            let known = |upstream| {
                cost.cost(self.cx, upstream)
                    .filter(|cost| !cost.is_nan())
                    .map(f64::from)
            };
            set.median(known).map_or(0.0, |median| median as f32)
        };
        let mut best: Option<(f32, UpstreamIndex)> = None;
        let mut ties = 0;
        for upstream in set.iter() {
            let cost = orderable(cost.cost(self.cx, upstream).unwrap_or(unknown));
            match best {
                Some((least, _)) if cost > least => {}
                Some((least, _)) if cost.total_cmp(&least).is_eq() => {
                    ties += 1;
                    // The nth of equals replaces the one before with chance 1/n, so each is as likely.
                    if draw.below(ties) == 0 {
                        best = Some((least, upstream));
                    }
                }
                _ => {
                    ties = 1;
                    best = Some((cost, upstream));
                }
            }
        }
        best.map(|(_, upstream)| upstream)
    }

    fn two_choices(&self, cost: &dyn Cost, set: &CandidateSet<'_>, draw: &mut Draw) -> Option<UpstreamIndex> {
        let n = set.len();
        let one = draw.below(n);
        if n < 2 {
            return set.nth(one);
        }
        // Two different ones: the second is drawn from the others.
        let two = draw.below(n - 1);
        let (one, two) = (set.nth(one)?, set.nth(if two >= one { two + 1 } else { two })?);
        let judged = (cost.cost(self.cx, one), cost.cost(self.cx, two));
        // Of one known and one unknown, the median of the known is the known: a tie, and so is two unknowns.
        let better = match judged {
            (Some(a), Some(b)) => orderable(a).total_cmp(&orderable(b)),
            (Some(a), None) if a.is_nan() => std::cmp::Ordering::Greater,
            (None, Some(b)) if b.is_nan() => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Equal,
        };
        // The first was drawn at random, so on a tie each is as likely.
        Some(if better.is_gt() { two } else { one })
    }

    fn rendezvous(&self, key: Key, set: &CandidateSet<'_>, draw: &mut Draw) -> Option<UpstreamIndex> {
        let facts = self.cx.facts;
        let key = match key {
            Key::Session => facts.session.or(facts.tenant),
            Key::Tenant => facts.tenant,
            Key::Model => facts.model,
        };
        let Some(key) = key else {
            return set.nth(draw.below(set.len()));
        };
        let key = stable_hash(key.as_bytes());
        let weight =
            |upstream: &UpstreamIndex| mix(key ^ stable_hash(self.cx.spec(*upstream).id.as_str().as_bytes()));
        set.iter().max_by_key(weight)
    }
}

/// NaN is worse than any number; zero is zero whatever its sign.
fn orderable(cost: f32) -> f32 {
    if cost.is_nan() { f32::INFINITY } else { cost + 0.0 }
}

/// The part that a draw below the total falls into.
fn part<'n>(parts: &'n [(u32, Node)], draw: u64, node: &'n Node) -> &'n Node {
    let mut below = 0;
    for (weight, node) in parts {
        below += u64::from(*weight);
        if draw < below {
            return node;
        }
    }
    node
}
