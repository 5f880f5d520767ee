//! What is remembered of who has left?
//!
//! A source may flap: an upstream that it loses and finds again is the same one. So a drain, which is the operator's word,
//! holds until he takes it back, and what is known against a machine for
//! [`longest_time`](crate::config::HealthRules::longest_time): by then it would be tried again anyway. The same id at
//! another URL is another machine, of which nothing is known, and is still drained.
//!
//! Of each, as many are remembered as can be known at once; who left first is forgotten first.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::Moment;
use crate::health::Past;
use crate::upstream::{Ledger, UpstreamId};

/// The operator's word and the health of upstreams that have left.
#[derive(Debug, Default)]
pub(super) struct Away {
    drained: Kept<()>,
    health: Kept<Health>,
}

#[derive(Debug)]
struct Health {
    url: String,
    left: Moment,
    past: Past,
}

impl Away {
    /// This one has left, drained or not, with something against it or nothing.
    pub(super) fn leave(
        &mut self,
        id: &UpstreamId,
        url: &str,
        drained: bool,
        past: Option<Past>,
        now: Moment,
    ) {
        if drained {
            self.drained.keep(id.clone(), ());
        }
        if let Some(past) = past {
            let (url, left) = (url.to_owned(), now);
            self.health.keep(id.clone(), Health { url, left, past });
        }
    }

    /// It is back, or the operator says that it is drained no more. Returns whether it was drained.
    pub(super) fn undrain(&mut self, id: &str) -> bool {
        self.drained.take(id).is_some()
    }

    /// It is back, at this URL: what is known against it.
    pub(super) fn take_past(&mut self, id: &str, url: &str, longest: Duration, now: Moment) -> Option<Past> {
        let health = self.health.take(id)?;
        (health.url == url && now.since(health.left) < longest).then_some(health.past)
    }

    /// Forgets what has been known for so long.
    pub(super) fn forget(&mut self, longest: Duration, now: Moment) {
        self.health
            .forget_first(|health| now.since(health.left) >= longest);
    }
}

/// By id, in the order in which they came.
#[derive(Debug)]
struct Kept<T> {
    by_id: HashMap<UpstreamId, (u64, T)>,
    order: BTreeMap<u64, UpstreamId>,
    next: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            by_id: HashMap::new(),
            order: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<T> Kept<T> {
    fn keep(&mut self, id: UpstreamId, what: T) {
        self.take(id.as_str());
        if self.by_id.len() >= Ledger::CAPACITY
            && let Some((_, first)) = self.order.pop_first()
        {
            self.by_id.remove(&first);
        }
        self.order.insert(self.next, id.clone());
        self.by_id.insert(id, (self.next, what));
        self.next += 1;
    }

    fn take(&mut self, id: &str) -> Option<T> {
        let (number, what) = self.by_id.remove(id)?;
        self.order.remove(&number);
        Some(what)
    }

    /// Forgets the first ones for as long as this holds of them.
    fn forget_first(&mut self, is_over: impl Fn(&T) -> bool) {
        while let Some(first) = self.order.first_entry()
            && self.by_id.get(first.get()).is_none_or(|(_, what)| is_over(what))
        {
            self.by_id.remove(&first.remove());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> UpstreamId {
        UpstreamId::new(text).unwrap()
    }

    #[test]
    fn who_left_first_is_forgotten_first_and_who_leaves_again_is_the_last() {
        let mut kept = Kept::default();
        kept.keep(id("again"), 1);
        kept.keep(id("first"), 1);
        kept.keep(id("again"), 2);
        for n in 2..Ledger::CAPACITY {
            kept.keep(id(&n.to_string()), 1);
        }
        assert_eq!(kept.by_id.len(), Ledger::CAPACITY);
        kept.keep(id("one-more"), 1);
        assert_eq!(
            (kept.by_id.len(), kept.order.len()),
            (Ledger::CAPACITY, Ledger::CAPACITY)
        );
        assert_eq!((kept.take("first"), kept.take("again")), (None, Some(2)));
    }

    #[test]
    fn what_is_over_is_forgotten_and_nothing_else() {
        let mut kept = Kept::default();
        for (name, when) in [("a", 1), ("b", 2), ("c", 3)] {
            kept.keep(id(name), when);
        }
        kept.take("a");
        kept.forget_first(|when| *when <= 2);
        assert_eq!((kept.by_id.len(), kept.order.len()), (1, 1));
        assert_eq!((kept.take("b"), kept.take("c")), (None, Some(3)));
    }
}
