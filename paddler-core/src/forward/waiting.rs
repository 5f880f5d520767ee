//! Where does a request find a place, and how does it wait for one?
//!
//! Whoever waits stands in one queue, whose order is in [`crate::queue`]. Arrivals never barge: while somebody waits, an
//! arrival stands in the queue too and gets what is free in its turn. What becomes free is handed to the first who can use
//! it, as a lease that is already his, so nobody can take it on the way. Whoever leaves is out at once, and a lease that was
//! handed to him meanwhile is handed on.

mod beside;
mod finder;
mod offering;
mod owed;
mod rounds;
mod vain;
mod wake;

use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tracing::debug;

use crate::Moment;
use crate::clock::Clock;
#[cfg(feature = "manage")]
use crate::manage::QueueStatus;
use crate::observe::Walks;
use crate::queue::{Charge, ClassWaits, Priority, QueueFull, QueueLimits, Ticket, Tried, Used, WaitQueue};
use crate::request::RequestFacts;
use crate::schedule::{Class, Ending, Explained, NodeId, Reason};
use crate::status::Published;
#[cfg(feature = "manage")]
use crate::status::Snapshot;
use crate::upstream::UpstreamId;
use finder::{Finder, News};
pub(super) use finder::{NAMED, Place};
use offering::{Answer, Answers, deliver};
pub(super) use owed::Owed;
use owed::Settlements;
use rounds::Rounds;
use wake::Wake;

/// Later than anything.
pub(super) const NEVER: Moment = Moment::from_nanos(u64::MAX);

/// Why there is no place.
#[derive(Debug, Clone)]
pub(super) enum NoPlace {
    /// The tree says so, or said so until the time was over.
    Ending { ending: Ending, waited: bool },
    /// Nobody more may wait. With why the request would have had to.
    Full { full: QueueFull, ending: Ending },
    /// The queue was full, and it had to go for somebody else.
    Evicted { ending: Ending },
}

impl NoPlace {
    /// Each who could serve it was tried.
    pub(super) fn in_vain() -> Self {
        let ending = Ending::new(Class::Later, Reason::Excluded, NodeId::default());
        Self::Ending {
            ending,
            waited: false,
        }
    }

    pub(super) fn ending(&self) -> &Ending {
        match self {
            Self::Ending { ending, .. } | Self::Full { ending, .. } | Self::Evicted { ending } => ending,
        }
    }
}

#[derive(Debug)]
struct Waiter {
    tell: oneshot::Sender<Answer>,
    // What the tree last said to this request.
    last: RefCell<Ending>,
}

/// Hands out places.
#[derive(Debug)]
pub(super) struct Places {
    finder: Finder,
    clock: Clock,
    queue: Mutex<WaitQueue<Waiter>>,
    settlements: Arc<Settlements>,
    rounds: Rounds,
    wake: Arc<Wake>,
}

impl Places {
    pub(super) fn new(published: Published, clock: Clock, limits: QueueLimits, seed: u64) -> Self {
        let wake = Arc::new(Wake::default());
        let hook = wake.clone();
        published.load().ledger().on_freed(move || hook.freed());
        Self {
            finder: Finder::new(published, seed),
            clock,
            queue: Mutex::new(WaitQueue::new(limits)),
            settlements: Arc::default(),
            rounds: Rounds::default(),
            wake,
        }
    }

    fn queue(&self) -> MutexGuard<'_, WaitQueue<Waiter>> {
        // What is done under the lock leaves the queue whole at every point.
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        for (charge, used) in self.settlements.take() {
            queue.settle(&charge, used);
        }
        queue
    }

    /// Changes how much may wait, and how long, from now on.
    pub(super) fn set_queue(&self, limits: QueueLimits) {
        self.queue().set_limits(limits);
    }

    #[cfg(test)]
    pub(super) fn limits(&self) -> QueueLimits {
        self.queue().limits().clone()
    }

    /// How many upstreams are told besides the one who is picked, from now on.
    pub(super) fn set_alternatives(&self, many: usize) {
        self.finder.set_alternatives(many);
    }

    /// What a request that was charged has used is known now.
    pub(super) fn settle(&self, charge: Charge, used: Used) {
        self.settlements.add(charge, used);
    }

    /// How each class waits, in the order of [`Priority::ALL`].
    pub(super) fn waiting(&self) -> [ClassWaits; 3] {
        self.queue().waits()
    }

    /// Who waits, counted.
    #[cfg(feature = "manage")]
    pub(super) fn queue_status(&self, snapshot: &Snapshot) -> QueueStatus {
        QueueStatus::of(&self.queue(), snapshot, self.clock.now())
    }

    /// The upstreams whose room is held back for somebody who needs more than is free.
    pub(super) fn held_back(&self) -> Vec<UpstreamId> {
        self.queue().held_back()
    }

    /// What is counted of walks through the tree.
    pub(super) fn walks(&self) -> &Walks {
        &self.finder.walks
    }

    /// What a request of this priority that finds no place is told to wait, by how fast the queue has moved; `otherwise`
    /// where that is not known.
    pub(super) fn retry_after(&self, priority: i32, otherwise: Duration) -> Duration {
        let wait = self.queue().wait_for(Priority::of(priority), self.clock.now());
        wait.unwrap_or(otherwise)
    }

    /// Whether anybody could take the request besides those who are left out for it now.
    pub(super) fn others_could(&self, facts: &RequestFacts, tried: &Tried) -> bool {
        self.finder.others_could(facts, tried, self.clock.now())
    }

    /// Why a request would get the place that it would get now, or none.
    pub(super) fn explain(&self, facts: &RequestFacts, most: usize) -> Result<Explained, NodeId> {
        self.finder.explain(facts, self.clock.now(), most)
    }

    pub(super) fn next_seed(&self) -> u64 {
        self.finder.next_seed()
    }

    /// A place for this request, now or after waiting.
    pub(super) async fn place(&self, facts: &RequestFacts, tried: &Tried) -> Result<Place, NoPlace> {
        let place = self.found(facts, tried).await?;
        if let Some(why) = &place.why {
            let (model, why) = (facts.as_facts().model.unwrap_or_default(), &why.explained.summary);
            debug!(upstream = %place.lease.upstream(), model, %why, "sent to");
        }
        Ok(place)
    }

    async fn found(&self, facts: &RequestFacts, tried: &Tried) -> Result<Place, NoPlace> {
        let refused = |ending| NoPlace::Ending {
            ending,
            waited: false,
        };
        // A request that takes no room holds nobody up, and does not wait behind those that do.
        let now = self.clock.now();
        if facts.weight == 0 {
            return self
                .finder
                .place(facts, &tried.left_out(now), now, News::Yes)
                .map_err(refused);
        }
        if self.wake.standing.load(Relaxed) == 0 {
            match self.finder.place(facts, &tried.left_out(now), now, News::No) {
                Err(ending) if ending.class == Class::Later => {}
                now => return now.map_err(refused),
            }
        }
        let (tell, told) = oneshot::channel();
        match self.stand(facts, tried, tell)? {
            Stood::Served(found) => Ok(found),
            Stood::Waits(ticket) => self.wait(ticket, told).await,
        }
    }

    /// Takes a place that nobody who waits can use, or stands in the queue.
    fn stand(
        &self,
        facts: &RequestFacts,
        tried: &Tried,
        tell: oneshot::Sender<Answer>,
    ) -> Result<Stood, NoPlace> {
        let mut answers = Answers::new();
        let result = {
            let mut queue = self.queue();
            self.wake.stand(queue.len() + 1);
            let now = self.clock.now();
            let ends = self.next_look(&queue);
            let mut place = self.arrive(&queue, (facts, tried), now);
            let contended = place.is_ok() && !queue.is_empty();
            if contended {
                // Those who came before may have it first.
                drop(place);
                place = Err(Ending::contended());
                if !queue.has_room_for(facts) {
                    self.offer(&mut queue, now, &mut answers);
                    place = self.arrive(&queue, (facts, tried), now);
                    if let Ok(found) = &place {
                        let upstream = found.lease.upstream();
                        queue.went(upstream, Priority::of(facts.priority), now);
                    }
                }
            }
            let result = match place {
                Ok(place) => Ok(Stood::Served(place)),
                Err(ending) => self.enqueue(&mut queue, (facts, tried, now), tell, ending, &mut answers),
            };
            if contended && matches!(result, Ok(Stood::Waits(_))) {
                // In his turn, it may well be his.
                self.offer(&mut queue, now, &mut answers);
            }
            self.wake.stand(queue.len());
            if self.next_look(&queue) < ends {
                // Whoever hands out has to know that he must come sooner.
                self.wake.notify.notify_one();
            }
            result
        };
        deliver(answers);
        result
    }

    /// A place for somebody who comes while others wait, but for what is held back for one of them.
    fn arrive(
        &self,
        queue: &WaitQueue<Waiter>,
        (facts, tried): (&RequestFacts, &Tried),
        now: Moment,
    ) -> Result<Place, Ending> {
        let kept = queue.kept_from(Priority::of(facts.priority));
        self.finder.place_beside(&kept, (facts, tried), now, News::Yes)
    }

    fn enqueue(
        &self,
        queue: &mut WaitQueue<Waiter>,
        (facts, tried, now): (&RequestFacts, &Tried, Moment),
        tell: oneshot::Sender<Answer>,
        ending: Ending,
        answers: &mut Answers,
    ) -> Result<Stood, NoPlace> {
        let max_wait = queue.limits().max_wait;
        if ending.class != Class::Later || self.is_in_vain((facts, tried), &ending, max_wait, now) {
            return Err(NoPlace::Ending {
                ending,
                waited: false,
            });
        }
        let elsewhere = facts.patience.filter(|until| *until < NEVER);
        if elsewhere.is_some_and(|until| until <= now || !queue.has_room_for(facts)) {
            // Whoever can ask for another model does not wait for nothing, and nobody has to go for him.
            return Err(NoPlace::Ending {
                ending,
                waited: false,
            });
        }
        let told = self.told(&ending, tried, now);
        let waiter = Waiter {
            tell,
            last: RefCell::new(ending.clone()),
        };
        let pushed = queue.push(facts.clone(), tried.clone(), told, now, waiter);
        let pushed = pushed.map_err(|full| NoPlace::Full { full, ending })?;
        for waiting in pushed.evicted {
            let Waiter { tell, last } = waiting.handle;
            let ending = last.into_inner();
            debug!(reason = %ending.reason, "went for somebody else");
            answers.push((tell, Err(NoPlace::Evicted { ending })));
        }
        Ok(Stood::Waits(pushed.ticket))
    }

    async fn wait(&self, ticket: Ticket, told: oneshot::Receiver<Answer>) -> Answer {
        let _standing = Standing { places: self, ticket };
        // Nobody drops the other end without an answer but a queue that is dropped as a whole.
        told.await.unwrap_or_else(|_| {
            let ending = Ending::contended();
            Err(NoPlace::Ending { ending, waited: true })
        })
    }

    /// When whoever hands out has to look again though nothing has changed.
    fn next_look(&self, queue: &WaitQueue<Waiter>) -> Moment {
        [queue.next_end(), queue.next_again()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(NEVER)
    }
}

enum Stood {
    Served(Place),
    Waits(Ticket),
}

/// Somebody who stands in the queue; dropped, he is out of it.
struct Standing<'a> {
    places: &'a Places,
    ticket: Ticket,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        let mut queue = self.places.queue();
        let ends = self.places.next_look(&queue);
        let left = queue.remove(self.ticket, self.places.clock.now());
        if self.places.next_look(&queue) < ends {
            // What was held back for him is free for others.
            self.places.wake.notify.notify_one();
        }
        self.places.wake.stand(queue.len());
        drop(queue);
        drop(left);
    }
}

#[cfg(test)]
mod tests;
