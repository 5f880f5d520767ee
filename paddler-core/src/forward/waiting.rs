//! Where does a request find a place, and how does it wait for one?
//!
//! Whoever waits stands in one queue. Arrivals never barge: while somebody waits, they stand behind him. What becomes
//! free is handed to the first who can use it, as a lease that is already his, so nobody can take it on the way. Whoever
//! leaves is out at once, and a lease that was handed to him meanwhile is handed on.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};
use tokio::time::sleep_until;

use crate::Moment;
use crate::clock::Clock;
use crate::queue::{QueueFull, QueueLimits, Ticket, WaitQueue, Waiting};
use crate::request::{Facts, RequestFacts};
use crate::schedule::{Ask, Class, Ending, NodeId, Reason, Scratch, mix};
use crate::status::Published;
use crate::upstream::{Lease, Transport, Upstream, UpstreamId};

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// A place at an upstream: the right to use it, and the way to it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) lease: Lease,
    pub(super) upstream: Arc<dyn Upstream>,
}

/// Why there is no place.
#[derive(Debug, Clone)]
pub(super) enum NoPlace {
    /// The tree says so, or said so until the time was over.
    Ending { ending: Ending, waited: bool },
    /// Nobody more may wait. With why the request would have had to.
    Full { full: QueueFull, ending: Ending },
}

#[derive(Debug)]
struct Waiter {
    tell: oneshot::Sender<Result<Place, Ending>>,
    // What the tree last said to this request.
    last: RefCell<Ending>,
}

/// Hands out places.
#[derive(Debug)]
pub(super) struct Places {
    published: Published,
    clock: Clock,
    seed: AtomicU64,
    queue: Mutex<WaitQueue<Waiter>>,
    waiting: AtomicUsize,
    wake: Arc<Notify>,
}

impl Places {
    pub(super) fn new(published: Published, clock: Clock, limits: QueueLimits, seed: u64) -> Self {
        let wake = Arc::new(Notify::new());
        let hook = wake.clone();
        published.load().ledger().on_freed(move || hook.notify_one());
        let queue = Mutex::new(WaitQueue::new(limits));
        Self { published, clock, seed: AtomicU64::new(seed), queue, waiting: AtomicUsize::new(0), wake }
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
        mix(self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst))
    }

    /// Picks and reserves, if that is possible now.
    fn place_now(&self, facts: &Facts<'_>, except: &[UpstreamId]) -> Result<Place, Ending> {
        let snapshot = self.published.load();
        if snapshot.is_empty() {
            return Err(Ending::new(Class::Later, Reason::NoUpstream, NodeId::default()));
        }
        let ask = Ask::new(facts, self.clock.now(), self.next_seed()).except(except);
        let lease = SCRATCH.with_borrow_mut(|scratch| snapshot.reserve(&ask, scratch, &mut ()))?;
        let entry = snapshot.find(lease.upstream().as_str());
        match entry.and_then(|entry| entry.spec().extensions.get::<Transport>()) {
            Some(transport) => Ok(Place { lease, upstream: transport.0.clone() }),
            // The status loop gives one to each upstream; a board that is driven otherwise may not.
            None => Err(Ending::new(Class::Later, Reason::Unhealthy, NodeId::default())),
        }
    }

    /// A place for this request, now or after waiting.
    pub(super) async fn place(&self, facts: &RequestFacts, except: &[UpstreamId]) -> Result<Place, NoPlace> {
        // A request that takes no room holds nobody up, and does not wait behind those that do.
        let weightless = facts.weight == 0;
        let ending = if weightless || self.waiting.load(SeqCst) == 0 {
            match self.place_now(&facts.as_facts(), except) {
                Ok(place) => return Ok(place),
                Err(ending) => ending,
            }
        } else {
            Ending::new(Class::Later, Reason::SlotsBusy, NodeId::default())
        };
        let excluded = ending.reason == Reason::Excluded;
        if weightless || excluded || ending.class != Class::Later {
            return Err(NoPlace::Ending { ending, waited: false });
        }
        self.wait(facts, except, ending).await
    }

    async fn wait(&self, facts: &RequestFacts, except: &[UpstreamId], ending: Ending) -> Result<Place, NoPlace> {
        let (tell, mut told) = oneshot::channel();
        let waiter = Waiter { tell, last: RefCell::new(ending.clone()) };
        let (ticket, deadline) = {
            let mut queue = self.queue();
            let pushed = queue.push(facts.clone(), except.to_vec(), self.clock.now(), waiter);
            self.waiting.store(queue.len(), SeqCst);
            pushed.map_err(|full| NoPlace::Full { full, ending })?
        };
        let mut standing = Standing { places: self, ticket: Some(ticket) };
        // Something may have become free before this request stood in the queue: look once more, in order.
        self.hand_out();
        let waited = |ending| NoPlace::Ending { ending, waited: true };
        tokio::select! {
            biased;
            told = &mut told => match told {
                Ok(result) => return result.map_err(waited),
                Err(_) => return Err(waited(Ending::new(Class::Later, Reason::Contended, NodeId::default()))),
            },
            () = sleep_until(self.clock.instant(deadline)) => {}
        }
        match standing.leave() {
            Some(waiting) => Err(waited(waiting.handle.last.into_inner())),
            // Served at the last moment.
            None => match told.await {
                Ok(result) => result.map_err(waited),
                Err(_) => Err(waited(Ending::new(Class::Later, Reason::Contended, NodeId::default()))),
            },
        }
    }

    /// Offers what is free to those who wait, in order. Says when to come again though nothing has changed: when the
    /// patience of somebody's alternative ends.
    fn hand_out(&self) -> Option<Moment> {
        let mut until: Option<Moment> = None;
        let served = {
            let mut queue = self.queue();
            let served = queue.hand_out(|waiting| match self.place_now(&waiting.facts.as_facts(), &waiting.except) {
                Ok(place) => Some(Ok(place)),
                Err(ending) if ending.class == Class::Later => {
                    until = [until, ending.until].into_iter().flatten().min();
                    waiting.handle.last.replace(ending);
                    None
                }
                // It has become known that waiting will not help.
                Err(ending) => Some(Err(ending)),
            });
            self.waiting.store(queue.len(), SeqCst);
            served
        };
        for (Waiting { handle, .. }, result) in served {
            // Who has left meanwhile lets the lease drop, which wakes the next one.
            if handle.tell.send(result).is_err() {
                tracing::trace!("a place came too late");
            }
        }
        until
    }

    /// Hands out whenever something becomes free, for ever.
    pub(super) async fn keep_handing_out(self: Arc<Self>) {
        loop {
            let until = if self.waiting.load(SeqCst) > 0 { self.hand_out() } else { None };
            tokio::select! {
                () = self.wake.notified() => {}
                () = sleep_until(self.clock.instant(until.unwrap_or(Moment::from_nanos(u64::MAX)))) => {}
            }
        }
    }
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
        self.places.waiting.store(queue.len(), SeqCst);
        waiting
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
