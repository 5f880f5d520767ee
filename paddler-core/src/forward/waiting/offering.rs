//! Who of those who wait gets what has become free, and who is sent away?
//!
//! The first who can use it gets it. Whoever has waited for as long as he may is asked once more before he is sent away: who
//! will not wait at all still gets what is idle. Who has begun to wait in vain is told so, and not kept to his end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep_until;
use tracing::{debug, trace};

use super::finder::{News, Place};
use super::rounds::Asks;
use super::{NoPlace, Owed, Places, Waiter};
use crate::Moment;
use crate::queue::{Offer, Served, WaitQueue, Waiting};
use crate::schedule::Class;
use crate::upstream::UpstreamId;

pub(super) type Answer = Result<Place, NoPlace>;

/// What is to be told to those who have left the queue, once its lock is free.
pub(super) type Answers = Vec<(oneshot::Sender<Answer>, Answer)>;

/// How long after a panic places are handed out again: soon, and without filling the log.
const AFTER_PANIC: Duration = Duration::from_millis(250);

impl Places {
    /// Offers what is free to those who wait, in order, and sends away those whose time is over. Says when to come again
    /// though nothing has changed.
    pub(super) fn offer(&self, queue: &mut WaitQueue<Waiter>, now: Moment, answers: &mut Answers) -> Moment {
        let generation = self.finder.published.load().generation();
        let asks = self.rounds.begin(generation, queue.len(), now);
        let max_wait = queue.limits().max_wait;
        let served = queue.hand_out(now, asks.others, |waiting, kept| {
            self.ask((waiting, kept), asks, max_wait, now)
        });
        answers.extend(served.into_iter().map(|served| self.answer(served)));
        for waiting in queue.expire(now) {
            let Waiter { tell, last } = waiting.handle;
            let ending = last.into_inner();
            debug!(reason = %ending.reason, "waited for as long as it may");
            answers.push((tell, Err(NoPlace::Ending { ending, waited: true })));
        }
        if queue.is_empty() {
            Moment::from_nanos(u64::MAX)
        } else {
            asks.next.min(self.next_look(queue))
        }
    }

    /// Asks somebody who waits whether he can use what is free.
    fn ask(
        &self,
        (waiting, kept): (&Waiting<Waiter>, &[UpstreamId]),
        asks: Asks,
        max_wait: Duration,
        now: Moment,
    ) -> Offer<Answer> {
        let (facts, tried) = (&waiting.facts, &waiting.tried);
        let ending = match self.finder.place_beside(kept, (facts, tried), now, News::No) {
            Ok(found) => {
                let lease = &found.lease;
                let (upstream, weight) = (lease.upstream().clone(), lease.weight());
                return Offer::Place {
                    place: Ok(found),
                    upstream,
                    weight,
                };
            }
            Err(ending) => ending,
        };
        if ending.class != Class::Later || self.is_in_vain((facts, tried), &ending, max_wait, now) {
            // It has become known that waiting will not help.
            return Offer::Leave(Err(NoPlace::Ending { ending, waited: true }));
        }
        let told = self.told(&ending, tried, now);
        let may_be_short = ending.reason.is_contention();
        waiting.handle.last.replace(ending);
        // Once nothing is free, the walk can give nobody a place, so the rest are not asked.
        if !asks.each_kind && !self.finder.published.load().has_room() {
            return Offer::Full(told);
        }
        let short_at = || self.finder.short_at(kept, (facts, tried), now);
        match may_be_short.then(short_at).flatten() {
            Some(upstream) => Offer::Short { told, upstream },
            None => Offer::Wait(told),
        }
    }

    /// What somebody who leaves the queue is told.
    fn answer(&self, served: Served<Waiter, Answer>) -> (oneshot::Sender<Answer>, Answer) {
        let answer = served.answer.map(|mut found| {
            let owed = |charge| Owed::new(charge, self.settlements.clone());
            found.owed = served.charge.map(owed);
            found
        });
        (served.waiting.handle.tell, answer)
    }

    /// Returns when to come again though nothing has changed.
    pub(super) fn hand_out(&self) -> Moment {
        let mut answers = Answers::new();
        let until = {
            let mut queue = self.queue();
            let until = self.offer(&mut queue, self.clock.now(), &mut answers);
            self.wake.stand(queue.len());
            until
        };
        deliver(answers);
        until
    }

    /// Hands out whenever something becomes free, for ever.
    pub(in crate::forward) async fn keep_handing_out(self: Arc<Self>) {
        loop {
            // It is the only one: whatever goes wrong, he comes again.
            let until = catch_unwind(AssertUnwindSafe(|| self.hand_out())).unwrap_or_else(|_| {
                tracing::error!("handing out places panicked; it goes on");
                self.clock.now().saturating_add(AFTER_PANIC)
            });
            tokio::select! {
                () = self.wake.notify.notified() => {}
                () = sleep_until(self.clock.instant(until)) => {}
            }
        }
    }
}

/// Tells those who are served. It is done without the lock, since it runs what others have put there.
pub(super) fn deliver(answers: Answers) {
    for (tell, answer) in answers {
        // Who has left meanwhile lets the lease drop, which wakes the next one.
        if tell.send(answer).is_err() {
            trace!("a place came too late");
        }
    }
}
