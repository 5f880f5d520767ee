//! Where does a request find a place, and how does it wait for one?
//!
//! Whoever waits stands in one queue. Arrivals never barge: while somebody waits, what an arrival could have is offered
//! to the queue first. What becomes free is handed to the first who can use it, as a lease that is already his, so nobody
//! can take it on the way. Whoever leaves is out at once, and a lease that was handed to him meanwhile is handed on.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;
use tracing::{Level, debug, enabled, trace};

use crate::Moment;
use crate::clock::Clock;
use crate::queue::{QueueFull, QueueLimits, Ticket, Tried, WaitQueue, Waiting};
use crate::request::{Facts, RequestFacts};
use crate::schedule::{Ask, Class, Ending, Explanation, NodeId, Observer, Reason, Scratch, next_seed};
use crate::status::{Published, Snapshot};
use crate::upstream::{Lease, Transport, Upstream, UpstreamTimeouts};

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A place at an upstream: the right to use it, and the way to it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) lease: Lease,
    pub(super) upstream: Arc<dyn Upstream>,
    pub(super) timeouts: UpstreamTimeouts,
}

/// A place, and why it is this one, where the log wants to know.
#[derive(Debug)]
struct Found {
    place: Place,
    why: Option<Box<str>>,
}

/// Why there is no place.
#[derive(Debug, Clone)]
pub(super) enum NoPlace {
    /// The tree says so, or said so until the time was over.
    Ending { ending: Ending, waited: bool },
    /// Nobody more may wait. With why the request would have had to.
    Full { full: QueueFull, ending: Ending },
}

impl NoPlace {
    pub(super) fn ending(&self) -> &Ending {
        match self {
            Self::Ending { ending, .. } | Self::Full { ending, .. } => ending,
        }
    }
}

#[derive(Debug)]
struct Waiter {
    tell: oneshot::Sender<Result<Found, Ending>>,
    // What the tree last said to this request.
    last: RefCell<Ending>,
}

type Served = Vec<(Waiting<Waiter>, Result<Found, Ending>)>;

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
    published: Published,
    clock: Clock,
    seed: AtomicU64,
    queue: Mutex<WaitQueue<Waiter>>,
    rounds: Rounds,
    wake: Arc<Wake>,
}

/// When everybody who waits was last asked. Changed under the queue's lock alone.
#[derive(Debug, Default)]
struct Rounds {
    generation: AtomicU64,
    nanos: AtomicU64,
}

impl Rounds {
    /// The shortest time from one such round to the next: it costs a walk for each who waits.
    const EVERY: Duration = Duration::from_millis(250);

    /// Whether everybody is to be asked now; if not, and there is news, when.
    fn begin(&self, generation: u64, now: Moment) -> (bool, Option<Moment>) {
        if self.generation.load(Relaxed) == generation {
            return (false, None);
        }
        let due = Moment::from_nanos(self.nanos.load(Relaxed)).saturating_add(Self::EVERY);
        if self.generation.load(Relaxed) != 0 && now < due {
            return (false, Some(due));
        }
        self.generation.store(generation, Relaxed);
        self.nanos.store(now.as_nanos(), Relaxed);
        (true, None)
    }
}

impl Places {
    pub(super) fn new(published: Published, clock: Clock, limits: QueueLimits, seed: u64) -> Self {
        let wake = Arc::new(Wake::default());
        let hook = wake.clone();
        published.load().ledger().on_freed(move || hook.freed());
        Self {
            published,
            clock,
            seed: AtomicU64::new(seed),
            queue: Mutex::new(WaitQueue::new(limits)),
            rounds: Rounds::default(),
            wake,
        }
    }

    fn queue(&self) -> MutexGuard<'_, WaitQueue<Waiter>> {
        // What is done under the lock leaves the queue whole at every point.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many wait, and since when the first of them.
    pub(super) fn waiting(&self) -> (usize, Option<Moment>) {
        let queue = self.queue();
        (queue.len(), queue.oldest())
    }

    pub(super) fn next_seed(&self) -> u64 {
        next_seed(&self.seed)
    }

    /// Picks and reserves, if that is possible now. `news`: whether it is worth a line in the log that the request has to
    /// wait. That it is refused always is.
    fn place_now(&self, facts: &Facts<'_>, tried: &Tried, now: Moment, news: News) -> Result<Found, Ending> {
        let snapshot = self.published.load();
        if !enabled!(Level::DEBUG) {
            let place = self.find(&snapshot, facts, tried, now, &mut ())?;
            return Ok(Found { place, why: None });
        }
        let mut why = Explanation::default();
        let found = self.find(&snapshot, facts, tried, now, &mut why);
        let (model, why) = (facts.model.unwrap_or_default(), why.summary(snapshot.tree()));
        match found {
            Ok(place) => Ok(Found {
                place,
                why: Some(why.into()),
            }),
            Err(ending) => {
                let reason = &ending.reason;
                match (ending.class, news) {
                    (Class::Later, News::No) => trace!(model, %reason, %why, "waits on"),
                    (Class::Later, News::Yes) => debug!(model, %reason, %why, "no place yet"),
                    (Class::Never | Class::Shed, _) => debug!(model, %reason, %why, "no place"),
                }
                Err(ending)
            }
        }
    }

    fn find<O: Observer>(
        &self,
        snapshot: &Snapshot,
        facts: &Facts<'_>,
        tried: &Tried,
        now: Moment,
        observer: &mut O,
    ) -> Result<Place, Ending> {
        let ending = |class, reason| Ending::new(class, reason, NodeId::default());
        if snapshot.is_empty() {
            return Err(ending(Class::Later, Reason::NoUpstream));
        }
        let except = tried.left_out(now);
        let ask = Ask::new(facts, now, self.next_seed()).except(&except);
        let lease = SCRATCH.with_borrow_mut(|scratch| snapshot.reserve(&ask, scratch, observer))?;
        let entry = snapshot.find(lease.upstream().as_str());
        let spec = entry.map(|entry| entry.spec());
        match spec.and_then(|spec| Some((spec.extensions.get::<Transport>()?, spec.timeouts))) {
            Some((transport, timeouts)) => Ok(Place {
                lease,
                upstream: transport.0.clone(),
                timeouts,
            }),
            // The status loop gives one to each upstream; a board that is driven otherwise may not. To wait would be to
            // reserve and give back the same place for ever.
            None => Err(ending(Class::Never, Reason::Unhealthy)),
        }
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
                .place_now(&facts.as_facts(), tried, self.clock.now(), News::Yes)
                .map_err(refused);
        }
        if self.wake.standing.load(Relaxed) == 0 {
            match self.place_now(&facts.as_facts(), tried, self.clock.now(), News::No) {
                Err(ending) if ending.class == Class::Later => {}
                now => return now.map_err(refused),
            }
        }
        let (tell, told) = oneshot::channel();
        match self.stand(facts, tried, tell)? {
            Stood::Served(found) => Ok(found),
            Stood::Waits(ticket, deadline) => self.wait(ticket, deadline, told).await,
        }
    }

    /// Takes a place that nobody who waits can use, or stands in the queue.
    fn stand(
        &self,
        facts: &RequestFacts,
        tried: &Tried,
        tell: oneshot::Sender<Result<Found, Ending>>,
    ) -> Result<Stood, NoPlace> {
        let (mut served, mut until) = (Served::new(), None);
        let result = {
            let mut queue = self.queue();
            self.wake.stand(queue.len() + 1);
            let now = self.clock.now();
            let mut place = self.place_now(&facts.as_facts(), tried, now, News::Yes);
            if place.is_ok() && !queue.is_empty() {
                // Those who came before may have it first.
                drop(place);
                (served, until) = self.offer(&mut queue, now);
                place = self.place_now(&facts.as_facts(), tried, now, News::Yes);
            }
            let result = match place {
                Ok(place) => Ok(Stood::Served(place)),
                Err(ending) => {
                    until = [until, again(&ending, tried, now)].into_iter().flatten().min();
                    self.enqueue(&mut queue, (facts, tried, now), tell, ending)
                }
            };
            self.wake.stand(queue.len());
            result
        };
        if until.is_some() {
            // Whoever hands out has to know that there is something to come again for.
            self.wake.notify.notify_one();
        }
        deliver(served);
        result
    }

    fn enqueue(
        &self,
        queue: &mut WaitQueue<Waiter>,
        (facts, tried, now): (&RequestFacts, &Tried, Moment),
        tell: oneshot::Sender<Result<Found, Ending>>,
        ending: Ending,
    ) -> Result<Stood, NoPlace> {
        // Who is left out stays so for longer than this request may wait.
        let in_vain = ending.reason == Reason::Excluded
            && tried
                .next_end(now)
                .zip(facts.deadline)
                .is_some_and(|(end, deadline)| deadline < end);
        if ending.class != Class::Later || in_vain {
            return Err(NoPlace::Ending {
                ending,
                waited: false,
            });
        }
        let waiter = Waiter {
            tell,
            last: RefCell::new(ending.clone()),
        };
        let pushed = queue.push(facts.clone(), tried.clone(), now, waiter);
        pushed
            .map(|(ticket, deadline)| Stood::Waits(ticket, deadline))
            .map_err(|full| NoPlace::Full { full, ending })
    }

    async fn wait(
        &self,
        ticket: Ticket,
        deadline: Moment,
        mut told: oneshot::Receiver<Result<Found, Ending>>,
    ) -> Result<Found, NoPlace> {
        let mut standing = Standing {
            places: self,
            ticket: Some(ticket),
        };
        let waited = |ending| NoPlace::Ending { ending, waited: true };
        let answer = tokio::select! {
            biased;
            answer = &mut told => answer,
            () = sleep_until(self.clock.instant(deadline)) => match standing.leave() {
                Some(waiting) => {
                    let ending = waiting.handle.last.into_inner();
                    debug!(reason = %ending.reason, "waited for as long as it may");
                    return Err(waited(ending));
                }
                // Served at the last moment.
                None => told.await,
            },
        };
        // Nobody drops the other end without an answer but a queue that is dropped as a whole.
        let gone = |_| Err(Ending::new(Class::Later, Reason::Contended, NodeId::default()));
        answer.unwrap_or_else(gone).map_err(waited)
    }

    /// Offers what is free to those who wait, in order. Says when to come again though nothing has changed.
    fn offer(&self, queue: &mut WaitQueue<Waiter>, now: Moment) -> (Served, Option<Moment>) {
        let mut until: Option<Moment> = None;
        // Once nothing is free, the walk can give nobody a place, so the rest are not asked. But what is published may mean
        // that waiting will not help: for that everybody is asked, now and then.
        let generation = self.published.load().generation();
        let (everybody, next) = self.rounds.begin(generation, now);
        let mut full = false;
        let served = queue.hand_out(
            |Waiting {
                 facts, tried, handle, ..
             }| {
                let next_look = again(&handle.last.borrow(), tried, now);
                if full && next_look.is_none_or(|at| at > now) {
                    until = [until, next_look, next].into_iter().flatten().min();
                    return None;
                }
                match self.place_now(&facts.as_facts(), tried, now, News::No) {
                    Ok(place) => Some(Ok(place)),
                    Err(ending) if ending.class == Class::Later => {
                        until = [until, again(&ending, tried, now)].into_iter().flatten().min();
                        handle.last.replace(ending);
                        full = !everybody && !self.published.load().has_room();
                        None
                    }
                    // It has become known that waiting will not help.
                    Err(ending) => Some(Err(ending)),
                }
            },
        );
        (served, until)
    }

    fn hand_out(&self) -> Option<Moment> {
        let (served, until) = {
            let mut queue = self.queue();
            let offered = self.offer(&mut queue, self.clock.now());
            self.wake.stand(queue.len());
            offered
        };
        deliver(served);
        until
    }

    /// Hands out whenever something becomes free, for ever.
    pub(super) async fn keep_handing_out(self: Arc<Self>) {
        loop {
            let until = self.hand_out().unwrap_or(Moment::from_nanos(u64::MAX));
            tokio::select! {
                () = self.wake.notify.notified() => {}
                () = sleep_until(self.clock.instant(until)) => {}
            }
        }
    }
}

/// When this request may get another answer though nothing has changed: when the patience of an alternative ends, or an
/// upstream that was tried may be asked again.
fn again(ending: &Ending, tried: &Tried, now: Moment) -> Option<Moment> {
    [ending.until, tried.next_end(now)].into_iter().flatten().min()
}

/// Tells those who are served. It is done without the lock, since it runs what others have put there.
fn deliver(served: Served) {
    for (Waiting { handle, .. }, result) in served {
        // Who has left meanwhile lets the lease drop, which wakes the next one.
        if handle.tell.send(result).is_err() {
            trace!("a place came too late");
        }
    }
}

/// Whether this is the first time that the request finds no place.
#[derive(Clone, Copy)]
enum News {
    Yes,
    No,
}

enum Stood {
    Served(Found),
    Waits(Ticket, Moment),
}

/// Somebody who stands in the queue; dropped, he is out of it.
struct Standing<'a> {
    places: &'a Places,
    ticket: Option<Ticket>,
}

impl Standing<'_> {
    fn leave(&mut self) -> Option<Waiting<Waiter>> {
        let ticket = self.ticket.take()?;
        let mut queue = self.places.queue();
        let waiting = queue.remove(ticket);
        self.places.wake.stand(queue.len());
        waiting
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests;
