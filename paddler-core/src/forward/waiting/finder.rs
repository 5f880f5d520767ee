//! Who has a place for a request now?
//!
//! One walk through the published tree, and what it picks is reserved. When the log wants to know why, the same walk says so.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use tracing::{Level, debug, enabled, trace};

use super::owed::Owed;
use crate::Moment;
use crate::observe::{Walks, Why};
use crate::queue::Tried;
use crate::request::RequestFacts;
use crate::schedule::{
    Ask, CandidateSet, Class, Detail, Ending, Explained, Explanation, NodeId, Observer, Outcome, PickCx,
    Reason, Record, Scratch, next_seed,
};
use crate::status::{Published, Snapshot};
use crate::upstream::{Lease, Transport, Upstream, UpstreamId, UpstreamSpec};

/// A place at an upstream: the right to use it, and the way to it.
#[derive(Debug)]
pub(in crate::forward) struct Place {
    pub(in crate::forward) lease: Lease,
    pub(in crate::forward) upstream: Arc<dyn Upstream>,
    pub(in crate::forward) spec: Arc<UpstreamSpec>,
    /// Who comes next, the best first.
    pub(in crate::forward) alternatives: Vec<UpstreamId>,
    /// What it was charged, if there was a queue for it.
    pub(in crate::forward) owed: Option<Owed>,
    /// Why it is this one, where somebody wants to know.
    pub(in crate::forward) why: Option<Box<Why>>,
}

/// How many upstreams each list of an explanation names.
pub(in crate::forward) const NAMED: usize = 20;

/// Whether this is the first time that the request finds no place.
#[derive(Clone, Copy)]
pub(super) enum News {
    Yes,
    No,
}

/// Keeps in mind which node is walked.
struct At<'a>(&'a Cell<NodeId>);

impl Observer for At<'_> {
    fn entered(&mut self, _cx: &PickCx<'_>, node: NodeId, _set: &CandidateSet<'_>) {
        self.0.set(node);
    }
}

/// A host's filter or cost may have a bug: it ends this request, and neither its connection nor the handing out.
///
/// # Errors
/// The node that panicked.
fn guarded<T>(facts: &RequestFacts, walk: impl FnOnce(&mut At<'_>) -> T) -> Result<T, NodeId> {
    let node = Cell::new(NodeId::default());
    catch_unwind(AssertUnwindSafe(|| walk(&mut At(&node)))).map_err(|_| {
        let (model, node) = (facts.model.as_deref().unwrap_or_default(), node.get());
        tracing::error!(model, node = node.get(), "a part of the tree panicked");
        node
    })
}

/// Finds places.
#[derive(Debug)]
pub(super) struct Finder {
    pub(super) published: Published,
    seed: AtomicU64,
    /// How many are told besides the one who is picked.
    alternatives: AtomicUsize,
    pub(super) walks: Walks,
}

impl Finder {
    pub(super) fn new(published: Published, seed: u64) -> Self {
        Self {
            walks: Walks::new(&published.load()),
            published,
            seed: AtomicU64::new(seed),
            alternatives: AtomicUsize::new(0),
        }
    }

    pub(super) fn set_alternatives(&self, many: usize) {
        self.alternatives.store(many, Relaxed);
    }

    pub(super) fn next_seed(&self) -> u64 {
        next_seed(&self.seed)
    }

    /// Picks and reserves, if that is possible now, but not at those of `except`. `news`: whether it is worth a line in the log that the request has to
    /// wait. That it is refused always is.
    pub(super) fn place(
        &self,
        facts: &RequestFacts,
        except: &[UpstreamId],
        now: Moment,
        news: News,
    ) -> Result<Place, Ending> {
        guarded(facts, |at| self.find(facts, except, now, (news, at)))
            .unwrap_or_else(|node| Err(Ending::new(Class::Never, Reason::FilterFailed, node)))
    }

    fn find(
        &self,
        facts: &RequestFacts,
        except: &[UpstreamId],
        now: Moment,
        (news, at): (News, &mut At<'_>),
    ) -> Result<Place, Ending> {
        let snapshot = self.published.load();
        // Whoever waits is asked again and again, with the queue locked: why is told of the walk that finds a place.
        let may_find = || {
            matches!(
                self.look(facts, facts.weight, except, now),
                Some(Outcome::Picked(_))
            )
        };
        if !enabled!(Level::DEBUG) && (facts.detail == Detail::Nothing || !may_find()) {
            return Ok(self.walk(&snapshot, facts, except, now, At(at.0))?.0);
        }
        let mut why = Explanation::default();
        let found = self.walk(&snapshot, facts, except, now, (At(at.0), &mut why));
        match found {
            Ok((mut place, record)) => {
                let why = why.data(snapshot.tree(), NAMED);
                place.why = Some(Box::new(Why::new(why, record, &snapshot)));
                Ok(place)
            }
            Err(ending) if !enabled!(Level::DEBUG) => Err(ending),
            Err(ending) => {
                let model = facts.model.as_deref().unwrap_or_default();
                let (why, reason) = (why.summary(snapshot.tree()), &ending.reason);
                match (ending.class, news) {
                    (Class::Later, News::No) => trace!(model, %reason, %why, "waits on"),
                    (Class::Later, News::Yes) => debug!(model, %reason, %why, "no place yet"),
                    (Class::Never | Class::Shed, _) => debug!(model, %reason, %why, "no place"),
                }
                Err(ending)
            }
        }
    }

    /// Whether anybody could take the request, at once or when there is room, besides those who are left out for it now.
    pub(super) fn others_could(&self, facts: &RequestFacts, tried: &Tried, now: Moment) -> bool {
        match self.look(facts, facts.weight, &tried.left_out(now), now) {
            Some(Outcome::Picked(_)) => true,
            Some(Outcome::Wait(ending)) => ending.reason.is_contention(),
            Some(Outcome::Refuse(_)) | None => false,
        }
    }

    /// Who would get the request if it had this weight. `None`: a part of the tree panicked.
    pub(super) fn look(
        &self,
        facts: &RequestFacts,
        weight: u32,
        except: &[UpstreamId],
        now: Moment,
    ) -> Option<Outcome> {
        let snapshot = self.published.load();
        let mut view = facts.as_facts();
        view.weight = weight;
        let ask = Ask {
            only: facts.only.as_deref(),
            ..Ask::new(&view, now, self.next_seed()).except(except)
        };
        let outcome = guarded(facts, |at| {
            Scratch::with(|scratch| snapshot.pick(&ask, scratch, at))
        });
        outcome.ok()
    }

    /// Why the request would get the place that it would get now, or none. Nothing is reserved.
    pub(super) fn explain(
        &self,
        facts: &RequestFacts,
        now: Moment,
        most: usize,
    ) -> Result<Explained, NodeId> {
        let snapshot = self.published.load();
        let view = facts.as_facts();
        let ask = Ask {
            only: facts.only.as_deref(),
            ..Ask::new(&view, now, facts.seed)
        };
        let ask = ask.want(1 + self.alternatives.load(Relaxed));
        guarded(facts, |at| {
            let mut looks_on = (At(at.0), Explanation::default());
            let _outcome = Scratch::with(|scratch| snapshot.pick(&ask, scratch, &mut looks_on));
            looks_on.1.data(snapshot.tree(), most)
        })
    }

    fn walk<O: Observer>(
        &self,
        snapshot: &Snapshot,
        facts: &RequestFacts,
        except: &[UpstreamId],
        now: Moment,
        observer: O,
    ) -> Result<(Place, Option<Record>), Ending> {
        let ending = |class, reason| Ending::new(class, reason, NodeId::default());
        if snapshot.is_empty() {
            return Err(ending(Class::Later, Reason::NoUpstream));
        }
        let (view, seed) = (facts.as_facts(), self.next_seed());
        let ask = Ask {
            only: facts.only.as_deref(),
            ..Ask::new(&view, now, seed).except(except)
        };
        let ask = ask.want(1 + self.alternatives.load(Relaxed));
        let nodes = self.walks.nodes(snapshot);
        let mut observer = (observer, nodes.counters());
        let reserve = |scratch: &mut Scratch| {
            if facts.detail == Detail::Record {
                let (lease, picks, record) = snapshot.reserve_recorded(&ask, scratch, &mut observer)?;
                Ok((lease, picks, Some(record)))
            } else {
                let (lease, picks) = snapshot.reserve_ranked(&ask, scratch, &mut observer)?;
                Ok((lease, picks, None))
            }
        };
        let (lease, picks, record) = self.walks.timed(seed, || Scratch::with(reserve))?;
        let next = picks.iter().skip(1).filter_map(|next| snapshot.spec(next));
        let alternatives = next.map(|spec| spec.id.clone()).collect();
        let spec = picks.first().and_then(|leased| snapshot.spec(leased));
        match spec.and_then(|spec| Some((spec.extensions.get::<Transport>()?, spec))) {
            Some((transport, spec)) => {
                let place = Place {
                    lease,
                    upstream: transport.0.clone(),
                    spec: spec.clone(),
                    alternatives,
                    owed: None,
                    why: None,
                };
                Ok((place, record))
            }
            // The status loop gives one to each upstream; a board that is driven otherwise may not. To wait would be to
            // reserve and give back the same place for ever.
            None => Err(ending(Class::Never, Reason::Unhealthy)),
        }
    }
}
