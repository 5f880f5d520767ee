//! How is one asked for?

use std::cell::RefCell;

use super::candidates::{Arena, CandidateSet};
use super::context::{PickCx, Reads};
use super::explain::Observer;
use super::filter::Filter;
use super::filters::model;
use super::frozen::Frozen;
use super::node::NodeId;
use super::outcome::{Class, Ending, Outcome, Picks, Reason};
use super::walk::Walk;
use crate::Moment;
use crate::request::Facts;
use crate::status::{ModelRow, Snapshot};
use crate::upstream::{Lease, Take, UpstreamId, UpstreamIndex};

/// How often a lost race for the last place is tried again elsewhere before the request waits. Who has lost so many in
/// the microseconds of a walk meets a pool that is all but full, and is better off when something ends.
const RACES: usize = 8;

/// Those whose last place was lost to another thread.
#[derive(Debug)]
pub(super) struct Lost {
    upstreams: [UpstreamIndex; RACES],
    many: usize,
}

impl Default for Lost {
    fn default() -> Self {
        Self {
            upstreams: [UpstreamIndex(0); RACES],
            many: 0,
        }
    }
}

impl Lost {
    pub(super) fn as_slice(&self) -> &[UpstreamIndex] {
        &self.upstreams[..self.many]
    }

    /// One more; beyond the bound nobody is kept, since nobody walks again.
    fn add(&mut self, upstream: UpstreamIndex) {
        if let Some(place) = self.upstreams.get_mut(self.many) {
            *place = upstream;
            self.many += 1;
        }
    }
}

/// One question: who should get this request?
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Ask<'a> {
    /// What is asked for.
    pub facts: &'a Facts<'a>,
    /// When.
    pub now: Moment,
    /// Where chance comes from: another one for each attempt.
    pub seed: u64,
    /// Nobody but these, if given. Of none: nobody.
    pub only: Option<&'a [UpstreamId]>,
    /// Not these: they were tried already.
    pub except: &'a [UpstreamId],
    /// How many to rank, 1 to 4.
    pub want: usize,
}

impl<'a> Ask<'a> {
    /// Asks for one upstream, whichever.
    pub fn new(facts: &'a Facts<'a>, now: Moment, seed: u64) -> Self {
        Self {
            facts,
            now,
            seed,
            only: None,
            except: &[],
            want: 1,
        }
    }

    /// Allows nobody but these.
    #[must_use]
    pub fn only(mut self, only: &'a [UpstreamId]) -> Self {
        self.only = Some(only);
        self
    }

    /// Excludes these.
    #[must_use]
    pub fn except(mut self, except: &'a [UpstreamId]) -> Self {
        self.except = except;
        self
    }

    /// Asks for so many, ranked. Clamped to 1..=4.
    #[must_use]
    pub fn want(mut self, want: usize) -> Self {
        self.want = want.clamp(1, Picks::MOST);
        self
    }
}

/// Memory for picks. Keep one per thread, or borrow the thread's own by [`with`](Self::with): it grows with the largest snapshot
/// and then no more.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) frozen: Frozen,
    pub(crate) arena: Arena,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

impl Scratch {
    /// Lends that of this thread. A filter of the host's that picks while it is asked gets a new one.
    pub fn with<R>(with: impl FnOnce(&mut Self) -> R) -> R {
        SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
            Ok(mut scratch) => with(&mut scratch),
            Err(_) => with(&mut Self::default()),
        })
    }
}

impl Snapshot {
    /// Picks, and reserves nothing. The outcome is a hint: use [`reserve`](Self::reserve) for a promise.
    pub fn pick<O: Observer>(&self, ask: &Ask<'_>, scratch: &mut Scratch, observer: &mut O) -> Outcome {
        self.pick_without(&[], self.tree.reads(), ask, scratch, observer)
    }

    pub(crate) fn pick_without<O: Observer>(
        &self,
        lost: &[UpstreamIndex],
        reads: Reads,
        ask: &Ask<'_>,
        scratch: &mut Scratch,
        observer: &mut O,
    ) -> Outcome {
        let model = ask.facts.model.and_then(|name| self.model(name));
        scratch.frozen.read(self, model, ask, reads);
        self.walk(lost, model, ask, scratch, observer)
    }

    /// The walk over what `scratch` holds frozen, without those that were `lost` to others.
    pub(crate) fn walk<O: Observer>(
        &self,
        lost: &[UpstreamIndex],
        model: Option<&ModelRow>,
        ask: &Ask<'_>,
        scratch: &mut Scratch,
        observer: &mut O,
    ) -> Outcome {
        let Scratch { frozen, arena } = scratch;
        let cx = PickCx {
            snapshot: self,
            facts: ask.facts,
            now: ask.now,
            seed: ask.seed,
            only: ask.only,
            frozen,
            model,
            signals: self.tree.signals(),
        };
        let reached = self.reached(ask.facts);
        let words = self.columns.live.len();
        let mut set = arena.candidates(words, |word| reached.word(word) & !cx.frozen.shut(word));
        let allowed = self.allow(lost, ask, &mut set);
        if let Err(ending) = allowed.and_then(|()| stands_in(&cx, &mut set)) {
            observer.ended(&cx, &ending);
            return ending.into();
        }
        Walk {
            cx: &cx,
            want: ask.want.clamp(1, Picks::MOST),
            observer,
        }
        .run(self.tree.root(), &mut set)
    }

    /// Takes out who is not allowed. Where there was nobody to begin with, or nobody of the subset lets requests in now, what
    /// that means is for the tree to say.
    fn allow(&self, lost: &[UpstreamIndex], ask: &Ask<'_>, set: &mut CandidateSet<'_>) -> Result<(), Ending> {
        if let Some(only) = ask.only {
            let known = || only.iter().filter_map(|id| self.index(id.as_str()));
            if !self.is_empty() && known().next().is_none() {
                return Err(Ending::new(Class::Never, Reason::NotInSubset, NodeId(0)));
            }
            set.keep(known());
        }
        if set.is_empty() {
            return Ok(());
        }
        for id in ask.except {
            if let Some(upstream) = self.index(id.as_str()) {
                set.remove(upstream);
            }
        }
        for upstream in lost {
            set.remove(*upstream);
        }
        if set.is_empty() {
            return Err(Ending::new(Class::Later, Reason::Excluded, NodeId(0)));
        }
        Ok(())
    }

    /// Picks and reserves: the lease is the promise that the upstream's limit has room for the request.
    ///
    /// A race lost to another thread excludes that upstream and walks again, a bounded number of times.
    ///
    /// # Errors
    /// How the walk ended, when nobody was picked.
    pub fn reserve<O: Observer>(
        &self,
        ask: &Ask<'_>,
        scratch: &mut Scratch,
        observer: &mut O,
    ) -> Result<Lease, Ending> {
        self.reserve_ranked(ask, scratch, observer)
            .map(|(lease, _)| lease)
    }

    /// Picks and reserves as [`reserve`](Self::reserve) does, and says who was picked: as many as [`Ask::want`] says, the best
    /// first, which the lease is for. Nothing is reserved at the others.
    ///
    /// # Errors
    /// How the walk ended, when nobody was picked.
    pub fn reserve_ranked<O: Observer>(
        &self,
        ask: &Ask<'_>,
        scratch: &mut Scratch,
        observer: &mut O,
    ) -> Result<(Lease, Picks), Ending> {
        let mut lost = Lost::default();
        self.reserve_without(&mut lost, self.tree.reads(), ask, scratch, observer)
    }

    /// The same, where those are left out, and kept, that were lost to others.
    pub(super) fn reserve_without<O: Observer>(
        &self,
        lost: &mut Lost,
        reads: Reads,
        ask: &Ask<'_>,
        scratch: &mut Scratch,
        observer: &mut O,
    ) -> Result<(Lease, Picks), Ending> {
        for race in 0..RACES {
            let picks = match self.pick_without(lost.as_slice(), reads, ask, scratch, observer) {
                Outcome::Picked(picks) => picks,
                Outcome::Wait(ending) | Outcome::Refuse(ending) if race == 0 => return Err(ending),
                // With those that were lost left out, nobody: they may have room again, so wait.
                Outcome::Wait(ending) | Outcome::Refuse(ending) => {
                    return Err(Ending {
                        class: Class::Later,
                        reason: Reason::Contended,
                        ..ending
                    });
                }
            };
            let Some(upstream) = picks.first() else { break };
            if let Some(lease) = self.lease(upstream, ask.facts, ask.now) {
                return Ok((lease, picks));
            }
            lost.add(upstream);
        }
        Err(Ending::new(Class::Later, Reason::Contended, NodeId(0)))
    }

    /// Reserves at this upstream; `None` when its limit has no room (any more), or it has left.
    pub fn lease(&self, upstream: UpstreamIndex, facts: &Facts<'_>, now: Moment) -> Option<Lease> {
        let entry = self.entry(upstream)?;
        let adapter = facts
            .model
            .and_then(|name| self.model(name))
            .filter(|row| row.is_adapter());
        let take = Take {
            weight: facts.weight,
            tokens: facts.tokens,
            adapter: adapter.map(|row| row.id),
        };
        // Never more than the upstream runs at once, or it could never run; less than that only because others are there,
        // or because it warms up, is no reason to count less.
        let most = entry.limit().map_or(take.weight, |limit| limit.max(1));
        let counted = Take {
            weight: take.weight.min(most),
            ..take
        };
        let room = entry.rooms.take(facts.model, take.weight)?;
        let tenancy = self.columns.tenancy[upstream.get()];
        let taken = self.ledger.try_take(upstream.0, tenancy, counted, now)?;
        Some(Lease::new(
            self.health.clone(),
            entry.spec.id.clone(),
            (taken, room),
            take,
        ))
    }
}

/// Of a request that another model serves than its own, takes out who does not have that, whatever the tree looks at: else any
/// engine would be said to be the other model.
fn stands_in(cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), Ending> {
    if cx.facts.instead_of.is_none() {
        return Ok(());
    }
    let serves = model();
    let judged = serves.narrow(cx, set);
    if judged.is_ok() && !set.is_empty() {
        return Ok(());
    }
    let lack = serves.lack(cx);
    Err(Ending::new(lack.class, lack.reason, NodeId(0)))
}
