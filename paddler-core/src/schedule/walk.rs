//! How does a request go through the tree?
//!
//! One walk serves picks, explanations and counters; only the observer differs.

use super::candidates::CandidateSet;
use super::context::PickCx;
use super::cost::{Cost, order};
use super::draw::{Draw, mix, stable_hash};
use super::explain::Observer;
use super::filter::{Filter, FilterError};
use super::node::{Alternative, Gate, Key, Kind, Node};
use super::outcome::{Class, Ending, Outcome, Picks, Reason};
use crate::Moment;
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
        let mut ending = match self.node(root, set) {
            Flow::Picked(picks) => return Outcome::Picked(picks),
            Flow::Ended(ending) | Flow::Rejected(ending) => ending,
            Flow::Next => {
                debug_assert!(false, "a checked tree decides");
                Ending::new(Class::Never, Reason::Filtered, root.id)
            }
        };
        if matches!(ending.reason, Reason::NoUpstream | Reason::Unhealthy) && self.cx.is_drained() {
            ending.reason = Reason::Draining;
        }
        self.observer.ended(self.cx, &ending);
        ending.into()
    }

    fn node(&mut self, node: &Node, set: &mut CandidateSet<'_>) -> Flow {
        self.observer.entered(self.cx, node.id, set);
        match &node.kind {
            Kind::List(nodes) => self.list(nodes, set),
            Kind::Require { filter, otherwise } => self.require(node, filter, *otherwise, set),
            Kind::Prefer { filter } => self.prefer(node, filter, set),
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
                let way = match when.holds(self.cx) {
                    Ok(true) => then,
                    Ok(false) => otherwise,
                    Err(error) => return Flow::Ended(self.failed(error, node)),
                };
                self.node(way, set)
            }
            Kind::FirstOf(alternatives) => self.first_of(alternatives, node, set),
            Kind::Split { total, parts } => self.split(*total, parts, node, set),
            Kind::ByModel { models, otherwise } => {
                let (asked, model) = (self.cx.facts.asked, self.cx.facts.model);
                let named = [asked, model]
                    .into_iter()
                    .flatten()
                    .find_map(|name| models.get(name));
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
            Err(error) => Flow::Ended(self.failed(error, node)),
            Ok(()) if set.is_empty() => {
                let lack = filter.lack(self.cx);
                let ending = Ending::new(otherwise.unwrap_or(lack.class), lack.reason, node.id);
                Flow::Ended(ending.titled(self.cx.snapshot.tree()))
            }
            Ok(()) => Flow::Next,
        }
    }

    /// What the host has put into this node could not judge.
    fn failed(&self, error: FilterError, node: &Node) -> Ending {
        let ending = Ending::new(Class::Never, Reason::FilterFailed, node.id);
        Ending {
            error: Some(error),
            ..ending.titled(self.cx.snapshot.tree())
        }
    }

    fn prefer(&mut self, node: &Node, filter: &dyn Filter, set: &mut CandidateSet<'_>) -> Flow {
        set.attempt(|set| self.narrow(node, filter, set).is_ok());
        Flow::Next
    }

    fn split(&mut self, total: u64, parts: &[(u32, Node)], node: &Node, set: &mut CandidateSet<'_>) -> Flow {
        // Drawn from the request's own seed, not the pick's: a retry stays in its part.
        let draw = Draw::new(self.cx.facts.seed, node.id).below(usize::try_from(total).unwrap_or(usize::MAX));
        match part(parts, draw as u64) {
            Some(part) => self.node(part, set),
            // A checked tree has some weight.
            None => Flow::Ended(Ending::new(Class::Never, Reason::Filtered, node.id)),
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
        // What decides below ends the walk, or the alternative, and with it this set.
        if set.attempt(|set| self.narrow(node, when, set).is_ok()) {
            self.node(then, set)
        } else {
            self.node(otherwise, set)
        }
    }

    fn gate(&mut self, node: &Node, gate: &Gate, set: &mut CandidateSet<'_>) -> bool {
        match gate {
            Gate::Any(filter) => set.fork(
                |copy| self.narrow(node, filter, copy).is_ok() && !copy.is_empty(),
                |_| false,
            ),
            Gate::All(filter) => {
                let before = set.len();
                set.fork(
                    |copy| self.narrow(node, filter, copy).is_ok() && before > 0 && copy.len() == before,
                    |_| false,
                )
            }
            Gate::MeanBelow(cost, limit) => {
                // Who cannot judge holds nothing.
                self.mean(&**cost, set)
                    .ok()
                    .flatten()
                    .is_some_and(|mean| mean < f64::from(*limit))
            }
        }
    }

    /// The mean of the costs that are known, if any is.
    fn mean(&self, cost: &dyn Cost, set: &CandidateSet<'_>) -> Result<Option<f64>, FilterError> {
        let (mut sum, mut count) = (0.0, 0u32);
        for upstream in set.iter() {
            if let Some(cost) = cost.cost(self.cx, upstream)?.filter(|cost| !cost.is_nan()) {
                sum += f64::from(cost);
                count += 1;
            }
        }
        Ok((count > 0).then(|| sum / f64::from(count)))
    }

    fn first_of(&mut self, alternatives: &[Alternative], node: &Node, set: &mut CandidateSet<'_>) -> Flow {
        let mut first: Option<Ending> = None;
        let (mut later, mut until) = (false, None);
        for alternative in alternatives {
            let flow = set.fork(
                |copy| self.node(&alternative.node, copy),
                |flow| matches!(flow, Flow::Next),
            );
            let Flow::Ended(ending) = flow else { return flow };
            let end = alternative
                .patience
                .map(|patience| self.cx.facts.arrived.saturating_add(patience));
            let waits = ending.class == Class::Later && end.is_none_or(|end| self.cx.now < end);
            later |= ending.class == Class::Later;
            until = earlier(until, ending.until);
            first.get_or_insert(ending);
            if waits {
                until = earlier(until, end);
                break;
            }
        }
        // Nobody: the first reason counts; but while one of them may do better later, the request waits.
        let mut ending = first.unwrap_or_else(|| Ending::new(Class::Never, Reason::Filtered, node.id));
        if later {
            ending.class = Class::Later;
        }
        ending.until = until;
        Flow::Ended(ending)
    }

    fn leaf(&mut self, node: &Node, set: &mut CandidateSet<'_>) -> Flow {
        if set.is_empty() {
            return Flow::Ended(Ending::new(Class::Later, Reason::NoUpstream, node.id));
        }
        self.observer.choosing(self.cx, node.id, set);
        let mut draw = Draw::new(self.cx.seed, node.id);
        let mut picks = Picks::default();
        let judged = match &node.kind {
            Kind::Least(cost) => self.least(&**cost, set, &mut picks, &mut draw),
            Kind::TwoChoices(cost) => {
                self.rank(set, &mut picks, |set| self.two_choices(&**cost, set, &mut draw))
            }
            Kind::Rendezvous(key) => {
                self.rank(set, &mut picks, |set| Ok(self.rendezvous(*key, set, &mut draw)))
            }
            _ => self.rank(set, &mut picks, |set| Ok(set.nth(draw.below(set.len())))),
        };
        if let Err(error) = judged {
            return Flow::Ended(self.failed(error, node));
        }
        self.observer.picked(self.cx, node.id, &picks);
        Flow::Picked(picks)
    }

    /// Chooses as many as are wanted, each among those that the ones before it have left.
    fn rank(
        &self,
        set: &mut CandidateSet<'_>,
        picks: &mut Picks,
        mut choose: impl FnMut(&mut CandidateSet<'_>) -> Result<Option<UpstreamIndex>, FilterError>,
    ) -> Result<(), FilterError> {
        while picks.len() < self.want {
            let Some(chosen) = choose(set)? else { break };
            picks.push(chosen);
            set.remove(chosen);
        }
        Ok(())
    }

    /// The costs of many at once where that can be; else each is asked once, whatever is wanted.
    fn least(
        &self,
        cost: &dyn Cost,
        set: &mut CandidateSet<'_>,
        picks: &mut Picks,
        draw: &mut Draw,
    ) -> Result<(), FilterError> {
        let mut by_words = true;
        self.rank(set, picks, |set| {
            let chosen = set.with_least(self.cx, cost, |least| least.get(draw.below(least.len())).copied());
            by_words = chosen.is_some();
            Ok(chosen.flatten())
        })?;
        if by_words {
            return Ok(());
        }
        let ranked = set.with_orders(self.cx, cost, |set, orders| {
            self.rank(set, picks, |set| {
                let place = least(orders, draw);
                Ok(place.and_then(|place| {
                    orders.remove(place);
                    set.nth(place)
                }))
            })
        });
        ranked.and_then(|ranked| ranked)
    }

    fn two_choices(
        &self,
        cost: &dyn Cost,
        set: &CandidateSet<'_>,
        draw: &mut Draw,
    ) -> Result<Option<UpstreamIndex>, FilterError> {
        let n = set.len();
        let one = draw.below(n);
        if n < 2 {
            return Ok(set.nth(one));
        }
        // Two different ones: the second is drawn from the others.
        let two = draw.below(n - 1);
        let two = set.nth(if two >= one { two + 1 } else { two });
        let (Some(one), Some(two)) = (set.nth(one), two) else {
            return Ok(None);
        };
        let judged = (cost.cost(self.cx, one)?, cost.cost(self.cx, two)?);
        let second_is_better = match judged {
            (Some(a), Some(b)) => order(b) < order(a),
            // Of one known and one unknown, the median of the known is the known: a tie, unless it is no number.
            (Some(a), None) => a.is_nan(),
            (None, _) => false,
        };
        // The first was drawn at random, so on a tie each is as likely.
        Ok(Some(if second_is_better { two } else { one }))
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
        let weight = |upstream: &UpstreamIndex| mix(key ^ self.cx.snapshot.columns.id_hash[upstream.get()]);
        set.iter().max_by_key(weight)
    }
}

/// The place of the lowest; among equals, each is as likely.
fn least(orders: &[i32], draw: &mut Draw) -> Option<usize> {
    let best = orders.iter().min()?;
    let ties = orders.iter().filter(|one| *one == best).count();
    let chosen = draw.below(ties);
    let places = orders.iter().enumerate().filter(|(_, one)| *one == best);
    places.map(|(place, _)| place).nth(chosen)
}

/// The earlier of two moments, where there are any.
fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    one.into_iter().chain(other).min()
}

/// The part that a draw below the total falls into.
fn part(parts: &[(u32, Node)], mut draw: u64) -> Option<&Node> {
    parts.iter().find_map(|(weight, node)| {
        let here = draw < u64::from(*weight);
        draw = draw.saturating_sub(u64::from(*weight));
        here.then_some(node)
    })
}
