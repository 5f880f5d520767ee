//! Where does a request find a place, and how does it wait for one?
//!
//! Whoever waits stands in one queue, whose order is in [`crate::queue`]. Arrivals never barge: while somebody waits, an
//! arrival stands in the queue too and gets what is free in its turn. What becomes free is handed to the first who can use
//! it, as a lease that is already his, so nobody can take it on the way. Whoever leaves is out at once, and a lease that was
//! handed to him meanwhile is handed on.

mod finder;
mod owed;
mod rounds;

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;
use tracing::{debug, trace};

use crate::Moment;
use crate::clock::Clock;
use crate::queue::{
    Charge, ClassWaits, Offer, Priority, QueueFull, QueueLimits, Served, Ticket, Told, Tried, Used,
    WaitQueue, Waiting,
};
use crate::request::RequestFacts;
use crate::schedule::{Class, Ending, NodeId, Reason};
use crate::status::Published;
pub(super) use finder::Place;
use finder::{Finder, Found, News};
pub(super) use owed::Owed;
use owed::Settlements;
use rounds::Rounds;

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

type Answer = Result<Found, NoPlace>;

/// What is to be told to those who have left the queue, once its lock is free.
type Answers = Vec<(oneshot::Sender<Answer>, Answer)>;

/// Wakes the one who hands out.
///
/// Who is about to wait says so, and then looks for a place; who gives one back does so, and then looks whether anybody
/// waits. The fences between see to it that at least one of the two sees the other.
#[derive(Debug, Default)]
struct Wake {
    /// Who waits, and who is about to.
    standing: AtomicUsize,
    notify: Notify,
}

impl Wake {
    fn stand(&self, many: usize) {
        self.standing.store(many, Relaxed);
        fence(SeqCst);
    }

    fn freed(&self) {
        fence(SeqCst);
        if self.standing.load(Relaxed) > 0 {
            self.notify.notify_one();
        }
    }
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

/// How long after a panic places are handed out again: soon, and without filling the log.
const AFTER_PANIC: Duration = Duration::from_millis(250);

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

    pub(super) fn next_seed(&self) -> u64 {
        self.finder.next_seed()
    }

    /// A place for this request, now or after waiting.
    pub(super) async fn place(&self, facts: &RequestFacts, tried: &Tried) -> Result<Place, NoPlace> {
        let Found { place, why } = self.found(facts, tried).await?;
        if let Some(why) = why {
            let model = facts.as_facts().model.unwrap_or_default();
            debug!(upstream = %place.lease.upstream(), model, %why, "sent to");
        }
        Ok(place)
    }

    async fn found(&self, facts: &RequestFacts, tried: &Tried) -> Result<Found, NoPlace> {
        let refused = |ending| NoPlace::Ending {
            ending,
            waited: false,
        };
        // A request that takes no room holds nobody up, and does not wait behind those that do.
        if facts.weight == 0 {
            return self
                .finder
                .place(facts, tried, self.clock.now(), News::Yes)
                .map_err(refused);
        }
        if self.wake.standing.load(Relaxed) == 0 {
            match self.finder.place(facts, tried, self.clock.now(), News::No) {
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
            let mut place = self.finder.place(facts, tried, now, News::Yes);
            let contended = place.is_ok() && !queue.is_empty();
            if contended {
                // Those who came before may have it first.
                drop(place);
                place = Err(Ending::new(Class::Later, Reason::Contended, NodeId::default()));
                if !queue.has_room_for(facts) {
                    self.offer(&mut queue, now, &mut answers);
                    place = self.finder.place(facts, tried, now, News::Yes);
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

    fn enqueue(
        &self,
        queue: &mut WaitQueue<Waiter>,
        (facts, tried, now): (&RequestFacts, &Tried, Moment),
        tell: oneshot::Sender<Answer>,
        ending: Ending,
        answers: &mut Answers,
    ) -> Result<Stood, NoPlace> {
        // Who is left out, or has asked to be left alone, stays so for longer than this request may wait.
        let longest = now.saturating_add(queue.limits().max_wait);
        let too_late = |end: Moment| end > longest || facts.deadline.is_some_and(|deadline| deadline < end);
        let nowhere_else = tried.left_out(now).len() >= self.finder.published.load().len();
        let excluded =
            (ending.reason == Reason::Excluded || nowhere_else) && tried.next_end(now).is_some_and(too_late);
        let snapshot = self.finder.published.load();
        let paused = snapshot.all_paused_until(facts.model.as_deref(), now);
        let in_vain = excluded || paused.is_some_and(too_late);
        if ending.class != Class::Later || in_vain {
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

    /// What a request hears from an ending that lets it wait.
    fn told(&self, ending: &Ending, tried: &Tried, now: Moment) -> Told {
        let nobody_able = match ending.reason {
            Reason::NoUpstream | Reason::Unhealthy | Reason::NeverHeard | Reason::Excluded => true,
            // Some have told what they have and may never tell more: a name that nobody knows is most likely wrong.
            Reason::ModelsUnknown => !self.finder.published.load().anyone_able(),
            _ => false,
        };
        let again = [ending.until, tried.next_end(now)].into_iter().flatten().min();
        Told { nobody_able, again }
    }

    async fn wait(&self, ticket: Ticket, told: oneshot::Receiver<Answer>) -> Answer {
        let _standing = Standing { places: self, ticket };
        // Nobody drops the other end without an answer but a queue that is dropped as a whole.
        told.await.unwrap_or_else(|_| {
            let ending = Ending::new(Class::Later, Reason::Contended, NodeId::default());
            Err(NoPlace::Ending { ending, waited: true })
        })
    }

    /// When whoever hands out has to look again though nothing has changed.
    fn next_look(&self, queue: &WaitQueue<Waiter>) -> Moment {
        let never = Moment::from_nanos(u64::MAX);
        [queue.next_end(), queue.next_again()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(never)
    }

    /// Sends away those whose time is over, and offers what is free to the others, in order. Says when to come again though
    /// nothing has changed.
    fn offer(&self, queue: &mut WaitQueue<Waiter>, now: Moment, answers: &mut Answers) -> Moment {
        for waiting in queue.expire(now) {
            let Waiter { tell, last } = waiting.handle;
            let ending = last.into_inner();
            debug!(reason = %ending.reason, "waited for as long as it may");
            answers.push((tell, Err(NoPlace::Ending { ending, waited: true })));
        }
        let generation = self.finder.published.load().generation();
        let asks = self.rounds.begin(generation, queue.len(), now);
        let served = queue.hand_out(now, asks.others, |waiting| {
            let Waiting {
                facts, tried, handle, ..
            } = waiting;
            match self.finder.place(facts, tried, now, News::No) {
                Ok(found) => Offer::Place(Ok(found)),
                Err(ending) if ending.class == Class::Later => {
                    let told = self.told(&ending, tried, now);
                    handle.last.replace(ending);
                    // Once nothing is free, the walk can give nobody a place, so the rest are not asked.
                    if !asks.each_kind && !self.finder.published.load().has_room() {
                        Offer::Full(told)
                    } else {
                        Offer::Wait(told)
                    }
                }
                // It has become known that waiting will not help.
                Err(ending) => Offer::Leave(Err(NoPlace::Ending { ending, waited: true })),
            }
        });
        answers.extend(served.into_iter().map(|served| self.answer(served)));
        if queue.is_empty() {
            Moment::from_nanos(u64::MAX)
        } else {
            asks.next.min(self.next_look(queue))
        }
    }

    /// What somebody who leaves the queue is told.
    fn answer(&self, served: Served<Waiter, Answer>) -> (oneshot::Sender<Answer>, Answer) {
        let answer = served.place.map(|mut found| {
            let owed = |charge| Owed::new(charge, self.settlements.clone());
            found.place.owed = served.charge.map(owed);
            found
        });
        (served.waiting.handle.tell, answer)
    }

    /// Returns when to come again though nothing has changed.
    fn hand_out(&self) -> Moment {
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
    pub(super) async fn keep_handing_out(self: Arc<Self>) {
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
fn deliver(answers: Answers) {
    for (tell, answer) in answers {
        // Who has left meanwhile lets the lease drop, which wakes the next one.
        if tell.send(answer).is_err() {
            trace!("a place came too late");
        }
    }
}

enum Stood {
    Served(Found),
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
        let left = queue.remove(self.ticket, self.places.clock.now());
        self.places.wake.stand(queue.len());
        drop(queue);
        drop(left);
    }
}

#[cfg(test)]
mod tests;
