//! How slowly may a body come in?
//!
//! Never, for longer than the pause that is allowed, at less than 1 KiB a second. One that falls as far behind 64 KiB a
//! second may take its time as long as nobody wants its room; when all the memory for bodies is taken, the one furthest
//! behind gives way first.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::clock::after;

/// The slowest that a body may come in, in bytes a second, once the allowed pause is used up.
const SLOWEST: u64 = 1024;

/// What keeps its room when others want it, in bytes a second: a phone at the edge of its network sends as much. So while the
/// memory is full, the longest body (64 MiB) holds its part for 17 minutes, and not for 18 hours.
const STEADY: u64 = 64 * 1024;

/// What holds less than this, in bytes, is not asked for it: it would help nobody, and at [`SLOWEST`] it is here in seconds.
const WORTH_ASKING: u64 = 16 * 1024;

/// When the next piece of a body has to be here.
#[derive(Debug)]
pub(super) struct Pace {
    /// Or it is too slow.
    patience: Bucket,
    /// Or it is behind.
    steady: Bucket,
}

/// Why no more of a body is waited for.
#[derive(Debug)]
pub(super) enum Late {
    TooSlow,
    /// Others want its room. To be dropped when that is free.
    GivesWay(Gone),
}

/// Dropped, it says that the room is free.
pub(super) type Gone = oneshot::Sender<()>;

impl Pace {
    pub(super) fn new(idle: Duration, now: Instant) -> Self {
        Self {
            patience: Bucket::new(SLOWEST, idle, now),
            steady: Bucket::new(STEADY, idle, now),
        }
    }

    /// So many bytes came.
    pub(super) fn came(&mut self, bytes: usize, now: Instant) {
        self.patience.came(bytes, now);
        self.steady.came(bytes, now);
    }

    /// Waits for the next piece of a body that holds so many bytes.
    pub(super) async fn wait<T>(
        &self,
        next: impl Future<Output = T>,
        held: u64,
        behind: &Behind,
    ) -> Result<T, Late> {
        let mut next = pin!(next);
        if let Ok(next) = timeout_at(self.steady.due, next.as_mut()).await {
            return Ok(next);
        }
        let listed = (held >= WORTH_ASKING)
            .then(|| behind.list(self.steady.due))
            .unzip();
        let (_listed, asked) = listed;
        let asked = async {
            match asked {
                Some(asked) => asked.await.ok(),
                None => None,
            }
        };
        tokio::select! {
            biased;
            Some(gone) = asked => Err(Late::GivesWay(gone)),
            next = next => Ok(next),
            () = sleep_until(self.patience.due) => Err(Late::TooSlow),
        }
    }
}

/// Time empties it, and bytes fill it. It holds no more than the pause that is allowed: else who sends fast at first could send
/// a byte now and then for hours.
#[derive(Debug)]
struct Bucket {
    /// In bytes a second.
    rate: u64,
    idle: Duration,
    /// When it is empty.
    due: Instant,
}

impl Bucket {
    fn new(rate: u64, idle: Duration, now: Instant) -> Self {
        let due = after(now, idle);
        Self { rate, idle, due }
    }

    fn came(&mut self, bytes: usize, now: Instant) {
        let earned = Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000 / self.rate));
        self.due = after(self.due, earned).min(after(now, self.idle));
    }
}

/// The bodies that have fallen behind and are waited for.
#[derive(Debug, Default)]
pub(super) struct Behind(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    /// By when they were due, and a number that no other has.
    bodies: BTreeMap<(Instant, u64), oneshot::Sender<Gone>>,
    listed: u64,
}

/// A body is on the list until this is dropped.
#[derive(Debug)]
struct Listed<'b> {
    behind: &'b Behind,
    place: (Instant, u64),
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.behind.lock().bodies.remove(&self.place);
    }
}

impl Behind {
    fn lock(&self) -> MutexGuard<'_, List> {
        // Nothing in here can leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self, due: Instant) -> (Listed<'_>, oneshot::Receiver<Gone>) {
        let (ask, asked) = oneshot::channel();
        let mut list = self.lock();
        let place = (due, list.listed);
        list.listed += 1;
        list.bodies.insert(place, ask);
        (Listed { behind: self, place }, asked)
    }

    /// Has the one furthest behind give way to one of this pace, and waits until its room is free. `false`: none is further
    /// behind than that one itself.
    pub(super) async fn make_room(&self, pace: &Pace) -> bool {
        let Some(ask) = self.furthest(pace.steady.due) else {
            return false;
        };
        let (gone, free) = oneshot::channel();
        if ask.send(gone).is_ok() {
            // It says nothing, and is dropped.
            free.await.ok();
        }
        true
    }

    fn furthest(&self, due: Instant) -> Option<oneshot::Sender<Gone>> {
        let mut list = self.lock();
        let first = list.bodies.first_entry()?;
        (first.key().0 < due).then(|| first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_no_credit_for_later() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut bucket = Bucket::new(SLOWEST, 30 * second, start);
        assert_eq!(bucket.due - start, 30 * second);
        // A MiB at once.
        bucket.came(1 << 20, start + second);
        assert_eq!(bucket.due - start, 31 * second);
        // Then a byte each second.
        let mut now = start + second;
        for _ in 0..30 {
            now += second;
            bucket.came(1, now);
        }
        assert!(bucket.due - now < second, "{:?}", bucket.due - now);
        // Who sends as fast as is asked for can go on.
        bucket.came(30 * 1024, now);
        assert!(bucket.due - now > 29 * second);
        let mut ever = Bucket::new(SLOWEST, Duration::MAX, start);
        ever.came(usize::MAX, start);
        assert!(ever.due - start > Duration::from_secs(1 << 29));
    }
}
