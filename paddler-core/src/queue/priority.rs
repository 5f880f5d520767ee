//! Which class is next?
//!
//! The highest, unless one below it is owed its share. Each place that goes to another class while somebody of this one
//! waits adds the class's share to what it is owed; once that comes to a whole place, it is its turn.

use super::MinShares;

/// The classes of requests that wait, the highest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// A priority above 0.
    High,
    /// 0: where nothing is said.
    Standard,
    /// Below 0: the first to go.
    Sheddable,
}

impl Priority {
    /// All of them, the highest first.
    pub const ALL: [Self; 3] = [Self::High, Self::Standard, Self::Sheddable];

    /// The class of a request's [priority](crate::request::RequestFacts::priority).
    pub fn of(priority: i32) -> Self {
        match priority {
            1.. => Self::High,
            0 => Self::Standard,
            _ => Self::Sheddable,
        }
    }

    /// The priority that a word stands for: that of a class, `critical` for `high`, or a whole number.
    ///
    /// ```
    /// use paddler_core::queue::Priority;
    ///
    /// let read = ["high", "critical", "standard", "sheddable", "-7", "urgent"].map(Priority::read);
    /// assert_eq!(read, [Some(1), Some(1), Some(0), Some(-1), Some(-7), None]);
    /// ```
    pub fn read(word: &str) -> Option<i32> {
        match word {
            // As the Gateway API Inference Extension called it at first.
            "high" | "critical" => Some(1),
            "standard" => Some(0),
            "sheddable" => Some(-1),
            number => number.parse().ok(),
        }
    }

    /// The word for it, as metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Standard => "standard",
            Self::Sheddable => "sheddable",
        }
    }

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// One whole place, in the unit of shares.
const PLACE: u32 = 100;

/// The most that a class is owed: what it could not use is not saved up for a burst.
const MOST_OWED: u32 = 2 * PLACE;

/// What each class is owed, in hundredths of a place.
#[derive(Debug, Default)]
pub(super) struct Turns([u32; 3]);

impl Turns {
    /// The classes in the order in which they are offered the next place.
    pub(super) fn order(&self, shares: MinShares) -> [Priority; 3] {
        let mut order = Priority::ALL;
        let due = |class: Priority| {
            let owed = self.0[class.index()];
            let due = class != Priority::High && owed + shares.of(class) >= PLACE;
            if due { owed } else { 0 }
        };
        // Stable: those that are owed nothing stay as they are.
        order.sort_by_key(|class| std::cmp::Reverse(due(*class)));
        order
    }

    /// A place went to this class.
    pub(super) fn handed(&mut self, to: Priority, shares: MinShares, waits: impl Fn(Priority) -> bool) {
        for class in [Priority::Standard, Priority::Sheddable] {
            let owed = &mut self.0[class.index()];
            if waits(class) {
                *owed = (*owed + shares.of(class)).min(MOST_OWED);
            }
            if class == to {
                *owed = owed.saturating_sub(PLACE);
            }
        }
    }

    /// Nobody of this class waits any more, so it is owed nothing.
    pub(super) fn left(&mut self, class: Priority) {
        self.0[class.index()] = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is served when somebody of each of these classes always waits.
    fn served(shares: MinShares, places: usize, waits: &[Priority]) -> Vec<Priority> {
        let mut turns = Turns::default();
        let one = |_| {
            let order = turns.order(shares);
            let class = *order.iter().find(|class| waits.contains(class)).unwrap();
            turns.handed(class, shares, |class| waits.contains(&class));
            class
        };
        (0..places).map(one).collect()
    }

    #[test]
    fn every_class_gets_its_share_within_the_bound_and_the_highest_the_rest() {
        for standard in 1..=MinShares::MOST {
            for sheddable in 1..=MinShares::MOST {
                let shares = MinShares::new(standard, sheddable);
                let served = served(shares, 1_000, &Priority::ALL);
                for class in Priority::ALL {
                    let bound = shares.bound(class) as usize;
                    let starved = served.windows(bound).position(|run| !run.contains(&class));
                    assert_eq!(starved, None, "{class:?} with {shares:?} in {bound}");
                    let places = served.iter().filter(|one| **one == class).count();
                    let due = shares.of(class) as usize * 10;
                    assert!(places.abs_diff(due) <= 2, "{class:?} with {shares:?}: {places}");
                }
            }
        }
    }

    #[test]
    fn what_a_class_does_not_use_goes_to_the_highest_that_waits() {
        let shares = MinShares::new(25, 5);
        let count = |served: &[Priority], class| served.iter().filter(|one| **one == class).count();
        let two = served(shares, 100, &[Priority::High, Priority::Sheddable]);
        assert_eq!(
            (count(&two, Priority::High), count(&two, Priority::Sheddable)),
            (95, 5)
        );
        assert_eq!(
            served(shares, 9, &[Priority::Sheddable]),
            [Priority::Sheddable; 9]
        );
        assert_eq!(
            served(shares, 3, &Priority::ALL),
            [Priority::High; 3],
            "nothing is owed at first"
        );
    }

    #[test]
    fn nothing_is_owed_to_who_does_not_wait() {
        let shares = MinShares::new(25, 5);
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.handed(Priority::High, shares, |class| class != Priority::Standard);
        }
        assert_eq!(
            turns.0,
            [0, 0, MOST_OWED],
            "and not without end to who could not use it"
        );
        turns.left(Priority::Sheddable);
        assert_eq!(turns.order(shares), Priority::ALL);
    }

    #[test]
    fn zero_is_standard() {
        let classes = [i32::MIN, -1, 0, 1, i32::MAX].map(Priority::of);
        use Priority::{High, Sheddable, Standard};
        assert_eq!(classes, [Sheddable, Sheddable, Standard, High, High]);
    }
}
