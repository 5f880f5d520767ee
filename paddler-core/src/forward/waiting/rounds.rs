//! Who of those who wait is asked whether he can use what is free, and when?
//!
//! To ask is to walk through the tree, under the queue's lock. As long as something is free, one of each kind is asked. What
//! is published may mean that waiting will not help, so now and then one of each kind is asked though nothing is free. And
//! since some trees tell those of one kind different things, all others are asked in turn, a few at a time: nobody finds the
//! queue locked for long, however many wait.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::Moment;

/// The shortest time from one round that asks each kind to the next.
const EACH_KIND: Duration = Duration::from_millis(250);

/// How long it takes until all others were asked, if there are no more of them than can be asked in it.
const EVERYBODY: Duration = Duration::from_secs(2);

/// How many others are asked at once: one or two milliseconds of work where a hundred upstreams are busy.
const OTHERS: usize = 256;

/// The shortest time from one such to the next. Where tens of thousands wait, it takes longer until all were asked.
const PAUSE: Duration = Duration::from_millis(50);

/// When those who wait were last asked beyond what is free. Changed under the queue's lock alone.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    generation: AtomicU64,
    each_kind: AtomicU64,
    others: AtomicU64,
}

/// Who is asked in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asks {
    /// One of each kind, also when nothing is free.
    pub(super) each_kind: bool,
    /// So many others.
    pub(super) others: usize,
    /// When there is to be another round though nothing has changed.
    pub(super) next: Moment,
}

impl Rounds {
    /// Whom to ask now, while so many wait.
    pub(super) fn begin(&self, generation: u64, waiting: usize, now: Moment) -> Asks {
        let due = |at: &AtomicU64, pause| Moment::from_nanos(at.load(Relaxed)).saturating_add(pause);
        let first = self.generation.load(Relaxed) == 0;
        let pause = pause(waiting);
        let others_due = due(&self.others, pause);
        let (others, others_next) = if first || now >= others_due {
            self.others.store(now.as_nanos(), Relaxed);
            (OTHERS, now.saturating_add(pause))
        } else {
            (0, others_due)
        };
        let is_news = self.generation.load(Relaxed) != generation;
        let each_kind_due = due(&self.each_kind, EACH_KIND);
        let each_kind = is_news && (first || now >= each_kind_due);
        if each_kind {
            self.generation.store(generation, Relaxed);
            self.each_kind.store(now.as_nanos(), Relaxed);
        }
        let next = if is_news && !each_kind {
            others_next.min(each_kind_due)
        } else {
            others_next
        };
        Asks {
            each_kind,
            others,
            next,
        }
    }
}

/// From one round that asks others to the next.
fn pause(waiting: usize) -> Duration {
    let rounds = waiting.div_ceil(OTHERS).max(1);
    (EVERYBODY / u32::try_from(rounds).unwrap_or(u32::MAX)).max(PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn asks(each_kind: bool, others: usize, next: u64) -> Asks {
        Asks {
            each_kind,
            others,
            next: at(next),
        }
    }

    #[test]
    fn news_are_told_soon_and_not_too_often() {
        let rounds = Rounds::default();
        assert_eq!(rounds.begin(1, 9, at(1_000)), asks(true, OTHERS, 3_000));
        assert_eq!(
            rounds.begin(1, 9, at(1_001)),
            asks(false, 0, 3_000),
            "nothing is new"
        );
        assert_eq!(rounds.begin(2, 9, at(1_100)), asks(false, 0, 1_250), "too soon");
        assert_eq!(rounds.begin(3, 9, at(1_250)), asks(true, 0, 3_000));
        assert_eq!(rounds.begin(3, 9, at(3_000)), asks(false, OTHERS, 5_000));
    }

    #[test]
    fn all_are_asked_within_two_seconds_and_few_at_a_time() {
        for (waiting, longest) in [(1, 2), (256, 2), (257, 2), (10_000, 2), (100_000, 20)] {
            let rounds = Rounds::default();
            let (mut now, mut asked) = (at(1), 0);
            while asked < waiting {
                let Asks { others, next, .. } = rounds.begin(1, waiting, now);
                assert!(next >= now.saturating_add(PAUSE));
                asked += others;
                now = next;
            }
            assert!(now <= at(longest * 1_000 + 1), "{waiting}: {now:?}");
        }
    }
}
