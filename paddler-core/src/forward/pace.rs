//! How slowly may a body come in?
//!
//! Never, for longer than the pause that is allowed, at less than 1 KiB a second. One that falls as far behind 64 KiB a
//! second may take its time as long as nobody wants its room; when all the memory for bodies is taken, the one furthest
//! behind gives way first. None gives way in vain: all who could have to hold what is missing.

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

/// For how long one piece waits for others to give way. They do as soon as their tasks run; this is for one that never does.
pub(super) const GIVING_WAY: Duration = Duration::from_secs(1);

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
            .then(|| behind.list(self.steady.due, held))
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
    bodies: BTreeMap<(Instant, u64), OneBehind>,
    listed: u64,
}

#[derive(Debug)]
struct OneBehind {
    /// In bytes. It holds no more and no less while it is listed: it waits for its next piece.
    held: u64,
    ask: oneshot::Sender<Gone>,
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

    fn list(&self, due: Instant, held: u64) -> (Listed<'_>, oneshot::Receiver<Gone>) {
        let (ask, asked) = oneshot::channel();
        let mut list = self.lock();
        let place = (due, list.listed);
        list.listed += 1;
        list.bodies.insert(place, OneBehind { held, ask });
        (Listed { behind: self, place }, asked)
    }

    /// Has the one furthest behind give way to one of this pace that misses so many bytes, and waits until its room is free.
    /// `false`: those further behind hold less than that together, or nothing was free in time.
    pub(super) async fn make_room(&self, pace: &Pace, missing: u64, until: Instant) -> bool {
        if missing == 0 {
            return true;
        }
        let Some(ask) = self.furthest(pace.steady.due, missing) else {
            return false;
        };
        let (gone, free) = oneshot::channel();
        // It says nothing, and is dropped. One that has ended meanwhile cannot be asked.
        ask.send(gone).is_err() || timeout_at(until, free).await.is_ok()
    }

    fn furthest(&self, due: Instant, missing: u64) -> Option<oneshot::Sender<Gone>> {
        let mut list = self.lock();
        let mut held = 0_u64;
        let enough = list.bodies.range(..(due, 0)).any(|(_, one)| {
            held = held.saturating_add(one.held);
            held >= missing
        });
        let first = enough.then(|| list.bodies.pop_first()).flatten();
        first.map(|(_, one)| one.ask)
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
    fn is_waiting<T>(of: std::pin::Pin<&mut impl Future<Output = T>>) -> bool {
        of.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
            .is_pending()
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_leaves_the_list_when_its_piece_is_here_and_when_it_is_given_up() {
        let (behind, start) = (Behind::default(), Instant::now());
        let pace = Pace {
            steady: Bucket::new(STEADY, Duration::ZERO, start),
            patience: Bucket::new(SLOWEST, Duration::from_secs(30), start),
        };
        for comes in [true, false] {
            let (send, piece) = oneshot::channel();
            let mut piece = Box::pin(pace.wait(piece, WORTH_ASKING, &behind));
            assert!(is_waiting(piece.as_mut()));
            assert_eq!(behind.lock().bodies.len(), 1);
            if comes {
                send.send(()).unwrap();
                assert!(piece.await.is_ok());
            } else {
                drop(piece);
            }
            assert_eq!(behind.lock().bodies.len(), 0, "{comes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_asked_and_never_answers_is_not_waited_for_without_end() {
        let (behind, start) = (Behind::default(), Instant::now());
        let (_listed, _asked) = behind.list(start, 100);
        let pace = Pace::new(Duration::from_secs(30), start);
        assert!(!behind.make_room(&pace, 100, after(start, GIVING_WAY)).await);
        assert_eq!(start.elapsed(), GIVING_WAY);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_asked_where_all_further_behind_hold_less_than_is_missing() {
        let (behind, start) = (Behind::default(), Instant::now());
        let pace = Pace::new(Duration::from_secs(30), start);
        let until = after(start, GIVING_WAY);
        let due = |seconds| after(start, Duration::from_secs(seconds));
        let (_first, mut first) = behind.list(due(1), 100);
        let (_second, mut second) = behind.list(due(2), 100);
        // It is less behind than who asks.
        let (_third, mut third) = behind.list(due(31), 100);
        assert!(!behind.make_room(&pace, 201, until).await);
        for one in [&mut first, &mut second, &mut third] {
            assert!(one.try_recv().is_err());
        }
        assert!(behind.make_room(&pace, 0, until).await);
        assert!(first.try_recv().is_err(), "nothing was missing");
        let asked = tokio::spawn(async { drop(first.await) });
        assert!(behind.make_room(&pace, 200, until).await);
        asked.await.unwrap();
        assert!(second.try_recv().is_err(), "one after the other");
    }
}
