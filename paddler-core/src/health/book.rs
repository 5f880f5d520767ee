//! Who puts what the machine says in force, and asks it nothing where all is well?
//!
//! The machine is behind a lock that only faults, and answers of upstreams in trouble, take. What follows is written into
//! the ledger, where picks see it at once.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::groups::Serves;
use super::member::Past;
use super::pool::Pool;
use super::{Cause, PoolHealth, UpstreamHealth, Verdict};
use crate::Moment;
use crate::config::HealthRules;
use crate::upstream::{Ledger, Probe, UpstreamId};

/// The health of all upstreams of one board, beside its ledger.
#[derive(Debug)]
pub(crate) struct HealthBook {
    ledger: Arc<Ledger>,
    pool: Mutex<Pool>,
}

/// What the board knows of an upstream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BoardView {
    /// It can be sent work, by its own word and the operator's.
    pub(crate) usable: bool,
    /// What it takes at once.
    pub(crate) room: u32,
    /// It has just said that it is ready, and had not before.
    pub(crate) became_ready: bool,
}

impl HealthBook {
    pub(crate) fn new(ledger: Arc<Ledger>, rules: HealthRules) -> Self {
        Self {
            ledger,
            pool: Mutex::new(Pool::new(rules)),
        }
    }

    pub(crate) fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // What is done under the lock leaves each member whole.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the pool and puts what follows in force.
    fn change<T>(&self, now: Moment, change: impl FnOnce(&mut Pool) -> T) -> T {
        let (result, opened) = {
            let mut pool = self.pool();
            let now = pool.now(now);
            let before = pool.totals();
            let result = change(&mut pool);
            say_panic(before, pool.totals());
            let touched = pool.take_touched();
            (result, self.put_in_force(&pool, touched, now))
        };
        // The lock is free: whoever is woken may look here.
        if opened {
            self.ledger.notify();
        }
        result
    }

    /// Returns whether anybody was let in who was not before.
    fn put_in_force(&self, pool: &Pool, places: Vec<u32>, now: Moment) -> bool {
        let mut opened = false;
        for place in places {
            if let (Some(gate), Some(member)) = (pool.gate(place, now), pool.member(place)) {
                opened |= self.ledger.set_gate(place, gate, member.is_watched());
            }
        }
        opened
    }

    pub(crate) fn set_rules(&self, rules: HealthRules, now: Moment) {
        self.change(now, |pool| {
            pool.set_rules(rules, now);
            pool.touch_all();
        });
    }

    pub(crate) fn join(
        &self,
        (place, tenancy): (u32, u16),
        id: UpstreamId,
        known: (BoardView, Serves),
        past: Option<Past>,
        now: Moment,
    ) {
        // What the one before has answered is not this one's.
        self.ledger.take_answered(place);
        let (known, serves) = known;
        let (known, what) = ((known.usable, known.room), (serves, past));
        self.change(now, |pool| pool.join((place, tenancy), id, known, what, now));
    }

    /// It can be asked for this from now on.
    pub(crate) fn serve(&self, place: u32, serves: Serves, now: Moment) {
        self.change(now, |pool| pool.serve(place, serves));
    }

    /// Returns what is known against it, for when it comes back.
    pub(crate) fn leave(&self, place: u32, now: Moment) -> Option<Past> {
        self.change(now, |pool| pool.leave(place))
    }

    pub(crate) fn update(&self, place: u32, known: BoardView, now: Moment) {
        let BoardView {
            usable,
            room,
            became_ready,
        } = known;
        let same = self
            .pool()
            .member(place)
            .is_some_and(|member| (member.usable, member.room) == (usable, room));
        // The usual report changes nothing here.
        if !same || became_ready {
            self.change(now, |pool| pool.update(place, usable, room, became_ready, now));
        }
    }

    /// It has answered a poll that was sent at `asked`.
    pub(crate) fn polled(&self, place: u32, asked: Moment, now: Moment) {
        let is_out = self
            .pool()
            .member(place)
            .is_some_and(super::member::Member::is_out);
        if is_out {
            self.change(now, |pool| {
                if pool.polled(place, asked, self.ledger.probe_began(place), now)
                    && let Some(member) = pool.member(place)
                {
                    tracing::info!(upstream = %member.id, "upstream works on a long request and answers polls: it is let back in");
                }
            });
        }
    }

    /// Takes down how an attempt went. `probe`: it was the one request that was let in.
    pub(crate) fn report(
        self: &Arc<Self>,
        (place, tenancy): (u32, u16),
        verdict: Verdict,
        probe: Option<Probe>,
        now: Moment,
    ) -> Option<FaultReceipt> {
        // Under the lock: a gate that has opened for all in between has made it a request as any other.
        let is_probe =
            |probe: Option<Probe>| probe.is_some_and(|probe| self.ledger.holds_probe(place, probe));
        let fault = match verdict {
            Verdict::Answered => {
                if self.ledger.answered(place, tenancy) || probe.is_some() {
                    self.change(now, |pool| {
                        if pool.answered(place, tenancy, is_probe(probe), now)
                            && let Some(member) = pool.member(place)
                        {
                            tracing::info!(upstream = %member.id, "upstream answers again");
                        }
                    });
                }
                return None;
            }
            Verdict::Busy(asked) => {
                let asked = asked.unwrap_or_default();
                self.change(now, |pool| pool.pause(place, tenancy, asked, now));
                return None;
            }
            Verdict::Fault(fault) | Verdict::FaultUntil(fault, _) => fault,
        };
        let number = self.change(now, |pool| {
            let number = pool.fault(place, tenancy, fault, is_probe(probe), now);
            if let Verdict::FaultUntil(_, asked) = verdict {
                pool.pause(place, tenancy, asked, now);
            }
            say_ejected(pool, place, fault.into(), now);
            number
        });
        Some(FaultReceipt {
            book: self.clone(),
            place: (place, tenancy),
            number: number?,
        })
    }

    /// An answer has come to its end: news only where a row of faults may end with it.
    pub(crate) fn completed(&self, (place, tenancy): (u32, u16)) {
        if self.ledger.is_watched(place) {
            self.change(Moment::ZERO, |pool| pool.completed(place, tenancy));
        }
    }

    /// Ends what has lasted long enough, and judges an interval that is over. Returns when to come again.
    pub(crate) fn tick(&self, now: Moment) -> Option<Moment> {
        self.change(now, |pool| {
            if pool.interval_is_over(now) {
                let places = (0u32..).take(pool.places());
                let good: Vec<_> = places.map(|place| self.ledger.take_answered(place)).collect();
                for place in pool.judge(&good, now) {
                    say_ejected(pool, place, Cause::SuccessRate, now);
                }
            }
            pool.tick(now)
        })
    }

    pub(crate) fn health(&self, place: u32) -> Option<UpstreamHealth> {
        self.pool().health(place)
    }

    pub(crate) fn totals(&self) -> PoolHealth {
        self.pool().totals()
    }
}

/// Says an ejection once: what is ejected now and has been for no time.
fn say_ejected(pool: &Pool, place: u32, cause: Cause, now: Moment) {
    if let Some(member) = pool.member(place)
        && let Some(time) = member.ejected_at(now)
    {
        tracing::warn!(upstream = %member.id, cause = cause.as_str(), ?time, "upstream is left out for a while");
    }
}

fn say_panic(before: PoolHealth, now: PoolHealth) {
    if now.panics > before.panics {
        tracing::error!(
            "every upstream that could serve a model is out for its faults: all of them are tried again until one answers"
        );
    } else if before.panicking && !now.panicking {
        tracing::info!("for each model an upstream is in again: those that fail are left out");
    }
}

/// A fault that was taken down, and can be taken back: it was the request's own.
pub struct FaultReceipt {
    book: Arc<HealthBook>,
    place: (u32, u16),
    number: u64,
}

impl FaultReceipt {
    /// Takes it back: it counts no more, and an ejection that rested on it is lifted.
    pub fn take_back(self, now: Moment) {
        let (place, tenancy) = self.place;
        self.book
            .change(now, |pool| pool.forgive(place, tenancy, self.number));
    }
}

impl fmt::Debug for FaultReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FaultReceipt").field(&self.number).finish()
    }
}
