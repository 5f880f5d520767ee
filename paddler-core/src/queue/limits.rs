//! How much may wait, how long, and what is each class sure of?

use std::time::Duration;

use super::Priority;
use crate::Moment;
use crate::config::{Limits, Queue};

/// How much may wait, and how long.
///
/// ```
/// use std::time::Duration;
/// use paddler_core::queue::{MinShares, QueueLimits};
///
/// let mut limits = QueueLimits::new(100, 1 << 30, Duration::from_secs(20));
/// assert_eq!(limits.max_wait_starting, limits.max_wait, "until it is said");
/// limits.max_wait_starting = Duration::from_secs(120);
/// limits.min_shares = MinShares::new(40, 10);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueLimits {
    /// The most requests that wait: [`Queue::max_requests`]. 0: nobody waits.
    pub max_requests: usize,
    /// The most bytes of bodies that wait. Default [`Limits::buffered_bodies`]. A router holds all its bodies to that limit
    /// before they wait, so there only a smaller one refuses anybody.
    pub max_bytes: u64,
    /// The longest that a request waits, from its arrival, over all its waits: [`Queue::max_wait`].
    pub max_wait: Duration,
    /// The longest that it waits while nobody is able to serve it at all: [`Queue::max_wait_starting`]. Less than
    /// `max_wait` counts as that.
    pub max_wait_starting: Duration,
    /// What each class is sure of.
    pub min_shares: MinShares,
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self::from_config(&Queue::default(), Limits::default().buffered_bodies)
    }
}

impl QueueLimits {
    /// These limits, the same wait whether or not somebody is able to serve, and the default shares.
    pub fn new(max_requests: usize, max_bytes: u64, max_wait: Duration) -> Self {
        Self {
            max_requests,
            max_bytes,
            max_wait,
            max_wait_starting: max_wait,
            min_shares: Queue::default().min_shares,
        }
    }

    pub(crate) fn from_config(queue: &Queue, max_bytes: u64) -> Self {
        Self {
            max_wait_starting: queue.max_wait_starting,
            min_shares: queue.min_shares,
            ..Self::new(queue.max_requests, max_bytes, queue.max_wait)
        }
    }

    /// When a wait ends. `able_since`: since when somebody is able to serve; `None`: nobody is.
    ///
    /// While nobody is, it ends `max_wait_starting` after the arrival. Once somebody is, the usual `max_wait` counts from
    /// then: all who came during the start are there at once and cannot all be first, so the time that they have waited
    /// already is not held against them. Upstreams that come and go add no more than one `max_wait`.
    pub(super) fn end(&self, arrived: Moment, own: Option<Moment>, able_since: Option<Moment>) -> Moment {
        let starting = arrived.saturating_add(self.max_wait_starting.max(self.max_wait));
        let end = match able_since {
            None => starting,
            Some(since) => arrived
                .max(since)
                .saturating_add(self.max_wait)
                .min(starting.saturating_add(self.max_wait)),
        };
        own.map_or(end, |own| own.min(end))
    }

    /// By what the requests of one tenant are ordered, in nanoseconds: when each came, brought forward by as much as its own
    /// deadline is earlier than the end of the usual wait, but by half of `max_wait` at most. So whoever asks for short waits
    /// comes before nobody who came that much earlier, and a tenant's patient requests do not starve. The usual wait itself
    /// is not in it: limits that change put nobody who waits already behind those who come.
    pub(super) fn due(&self, arrived: Moment, own: Option<Moment>) -> i128 {
        let usual = arrived.saturating_add(self.max_wait);
        let hurry = own.map_or(Duration::ZERO, |own| usual.since(own));
        let hurry = hurry.min(self.max_wait / 2).as_nanos();
        i128::from(arrived.as_nanos()) - i128::try_from(hurry).unwrap_or(i128::MAX)
    }

    /// How many places of the queue are a class's own: its share of them, rounded down, and at least one where there is one
    /// for each. What the lower classes are not sure of, the highest is.
    pub(super) fn part(&self, priority: Priority) -> usize {
        let least = usize::from(self.max_requests >= Priority::ALL.len());
        let of = |percent: u32| {
            let part =
                self.max_requests / 100 * percent as usize + self.max_requests % 100 * percent as usize / 100;
            part.max(least)
        };
        match priority {
            Priority::High => {
                self.max_requests - of(self.min_shares.standard()) - of(self.min_shares.sheddable())
            }
            lower => of(self.min_shares.of(lower)),
        }
    }
}

/// The least part of all places handed out that a class gets while somebody of it waits, in percent. [`Priority::High`]
/// is sure of what the other two leave: at least 10.
///
/// Places and not tokens, since a place is what the queue has to give, and since the [`bound`](Self::bound) is then exact.
///
/// ```
/// use paddler_core::queue::{MinShares, Priority};
///
/// let shares = MinShares::new(25, 5);
/// assert_eq!(Priority::ALL.map(|class| shares.bound(class)), [5, 5, 21]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinShares {
    standard: u8,
    sheddable: u8,
}

impl MinShares {
    /// The largest share that can be given, so that the three together fit.
    pub const MOST: u8 = 45;

    /// These shares in percent, each clamped to 1..=[`MOST`](Self::MOST): no class may starve.
    pub const fn new(standard: u8, sheddable: u8) -> Self {
        const fn clamped(share: u8) -> u8 {
            match share {
                0 => 1,
                share if share > MinShares::MOST => MinShares::MOST,
                share => share,
            }
        }
        Self {
            standard: clamped(standard),
            sheddable: clamped(sheddable),
        }
    }

    /// That of [`Priority::Standard`].
    pub fn standard(&self) -> u32 {
        self.standard.into()
    }

    /// That of [`Priority::Sheddable`].
    pub fn sheddable(&self) -> u32 {
        self.sheddable.into()
    }

    /// Of so many places handed out in a row, each of which somebody of the class could have used, at least one goes to it,
    /// whoever else waits: ⌈100 / share⌉, and one more since both classes below the highest may be owed a place at once.
    /// The highest comes after what is owed to both, and gets one of ⌈300 / share⌉.
    pub fn bound(&self, priority: Priority) -> u32 {
        match priority {
            Priority::High => 300_u32.div_ceil(self.of(priority)),
            lower => 100_u32.div_ceil(self.of(lower)) + 1,
        }
    }

    /// That of any class.
    pub fn of(&self, priority: Priority) -> u32 {
        match priority {
            Priority::High => 100 - self.standard() - self.sheddable(),
            Priority::Standard => self.standard(),
            Priority::Sheddable => self.sheddable(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_up_the_whole_and_each_class_has_one_where_there_are_three() {
        for max_requests in [0, 1, 2, 3, 10, 30, 99, 100, 101, 1_000_000, usize::MAX] {
            let limits = QueueLimits::new(max_requests, 0, Duration::ZERO);
            let parts = Priority::ALL.map(|priority| limits.part(priority));
            assert_eq!(parts.iter().sum::<usize>(), max_requests);
        }
        let parts = |max_requests| {
            let limits = QueueLimits::new(max_requests, 0, Duration::ZERO);
            Priority::ALL.map(|priority| limits.part(priority))
        };
        assert_eq!(parts(30), [22, 7, 1]);
        assert_eq!(parts(10), [7, 2, 1]);
        assert_eq!((parts(3), parts(2)), ([1, 1, 1], [2, 0, 0]));
    }

    #[test]
    fn the_wait_is_longer_while_nobody_is_able_and_begins_anew_when_somebody_is() {
        let at = Moment::from_millis;
        let mut limits = QueueLimits::new(9, 0, Duration::from_millis(10));
        limits.max_wait_starting = Duration::from_millis(60);
        assert_eq!(limits.end(at(100), None, Some(Moment::ZERO)), at(110));
        assert_eq!(limits.end(at(100), None, None), at(160));
        assert_eq!(limits.end(at(100), None, Some(at(150))), at(160));
        assert_eq!(limits.end(at(100), None, Some(at(158))), at(168));
        assert_eq!(limits.end(at(100), None, Some(at(999))), at(170), "and no longer");
        assert_eq!(
            limits.end(at(100), Some(at(130)), None),
            at(130),
            "his own is earlier"
        );
        limits.max_wait_starting = Duration::ZERO;
        assert_eq!(
            limits.end(at(100), None, None),
            at(110),
            "never shorter than the usual wait"
        );
    }
}
