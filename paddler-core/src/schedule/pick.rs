//! How is one asked for?

use super::candidates::Arena;
use super::context::PickCx;
use super::explain::Observer;
use super::frozen::Frozen;
use super::node::NodeId;
use super::outcome::{Class, Ending, Outcome, Picks, Reason};
use super::walk::Walk;
use crate::Moment;
use crate::request::Facts;
use crate::status::Snapshot;
use crate::upstream::{Lease, Take, UpstreamId, UpstreamIndex};

/// How often a lost race for the last place is tried again elsewhere before the request waits.
const RACES: usize = 8;

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

/// Memory for picks. Keep one per thread: it grows with the largest snapshot and then no more.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) frozen: Frozen,
    pub(crate) arena: Arena,
}

impl Snapshot {
    /// Picks, and reserves nothing. The outcome is a hint: use [`reserve`](Self::reserve) for a promise.
    pub fn pick<O: Observer>(&self, ask: &Ask<'_>, scratch: &mut Scratch, observer: &mut O) -> Outcome {
        let model = ask.facts.model.and_then(|name| self.model(name));
        scratch.frozen.read(self, model, self.tree.reads());
        self.walk(ask, scratch, observer)
    }

    /// The walk over what `scratch` holds frozen.
    pub(crate) fn walk<O: Observer>(
        &self,
        ask: &Ask<'_>,
        scratch: &mut Scratch,
        observer: &mut O,
    ) -> Outcome {
        let Scratch { frozen, arena } = scratch;
        let model = ask.facts.model.and_then(|name| self.model(name));
        let cx = PickCx {
            snapshot: self,
            facts: ask.facts,
            now: ask.now,
            seed: ask.seed,
            frozen,
            model,
            signals: self.tree.signals(),
        };
        let live = &self.columns.live;
        let mut set = arena.candidates(live.len(), |word| live[word] & !cx.frozen.is_barred(word));
        let somebody = !set.is_empty();
        if let Some(only) = ask.only {
            let allowed = |upstream| only.contains(&cx.spec(upstream).id);
            set.retain(allowed);
            if somebody && set.is_empty() {
                return Ending::new(Class::Never, Reason::NotInSubset, NodeId(0)).into();
            }
        }
        for id in ask.except {
            if let Some(upstream) = self.index(id.as_str()) {
                set.remove(upstream);
            }
        }
        if somebody && set.is_empty() {
            return Ending::new(Class::Later, Reason::Excluded, NodeId(0)).into();
        }
        Walk {
            cx: &cx,
            want: ask.want.clamp(1, Picks::MOST),
            observer,
        }
        .run(self.tree.root(), &mut set)
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
        let mut lost: [Option<UpstreamId>; RACES] = [const { None }; RACES];
        for race in 0..RACES {
            let outcome = if race == 0 {
                self.pick(ask, scratch, observer)
            } else {
                // A race was lost, which is rare: here a list may be made.
                let except: Vec<_> = ask.except.iter().chain(lost.iter().flatten()).cloned().collect();
                self.pick(
                    &Ask {
                        except: &except,
                        ..*ask
                    },
                    scratch,
                    observer,
                )
            };
            let upstream = match outcome {
                Outcome::Picked(picks) => picks.first(),
                // With those that were lost left out, nobody: they may have room again, so wait.
                Outcome::Wait(ending) | Outcome::Refuse(ending) if race == 0 => return Err(ending),
                Outcome::Wait(ending) | Outcome::Refuse(ending) => {
                    return Err(Ending {
                        class: Class::Later,
                        reason: Reason::Contended,
                        ..ending
                    });
                }
            };
            let Some(upstream) = upstream else { break };
            match self.lease(upstream, ask.facts, ask.now) {
                Some(lease) => return Ok(lease),
                None => lost[race] = self.spec(upstream).map(|spec| spec.id.clone()),
            }
        }
        Err(Ending::new(Class::Later, Reason::Contended, NodeId(0)))
    }

    /// Reserves at this upstream; `None` when its limit has no room (any more), or it has left.
    pub fn lease(&self, upstream: UpstreamIndex, facts: &Facts<'_>, now: Moment) -> Option<Lease> {
        let spec = self.spec(upstream)?;
        let adapter = facts
            .model
            .and_then(|name| self.model(name))
            .filter(|row| row.is_adapter());
        let take = Take {
            weight: facts.weight,
            tokens: facts.tokens,
            adapter: adapter.map(|row| row.id),
        };
        let taken = self
            .ledger
            .try_take(upstream.0, self.columns.tenant[upstream.get()], take, now)?;
        Some(Lease::new(self.ledger.clone(), spec.id.clone(), taken, take))
    }
}
