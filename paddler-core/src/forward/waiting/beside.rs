//! Who has a place, where room at some upstreams is held back for others?
//!
//! The tree knows nothing of it: they are left out of the walk. What the walk without them ends with is not what is told,
//! since they are not gone: it is asked again with them.

use std::time::Duration;

use super::finder::{Finder, Found, News};
use crate::Moment;
use crate::queue::Tried;
use crate::request::RequestFacts;
use crate::schedule::{Class, Ending, NodeId, Outcome, Reason};
use crate::upstream::UpstreamId;

/// Left out now, for this walk.
fn besides(tried: &Tried, kept: &[UpstreamId], now: Moment) -> Tried {
    let mut tried = tried.clone();
    for upstream in kept {
        tried.add(upstream.clone(), now, Some(Duration::ZERO));
    }
    tried
}

impl Finder {
    /// Picks and reserves as [`place`](Self::place) does, and nothing at those that are kept for others.
    pub(super) fn place_beside(
        &self,
        kept: &[UpstreamId],
        (facts, tried): (&RequestFacts, &Tried),
        now: Moment,
        news: News,
    ) -> Result<Found, Ending> {
        if kept.is_empty() {
            return self.place(facts, tried, now, news);
        }
        let ending = match self.place(facts, &besides(tried, kept, now), now, news) {
            Ok(found) => return Ok(found),
            Err(ending) => ending,
        };
        Err(match self.look(facts, facts.weight, tried, now) {
            Some(Outcome::Picked(_)) => Ending::new(Class::Later, Reason::Contended, NodeId::default()),
            Some(Outcome::Wait(with_them) | Outcome::Refuse(with_them)) => with_them,
            None => ending,
        })
    }

    /// Where there is room, and only less than the request needs.
    pub(super) fn short_at(
        &self,
        kept: &[UpstreamId],
        (facts, tried): (&RequestFacts, &Tried),
        now: Moment,
    ) -> Option<UpstreamId> {
        if facts.weight < 2 {
            return None;
        }
        let Some(Outcome::Picked(picks)) = self.look(facts, 1, &besides(tried, kept, now), now) else {
            return None;
        };
        let snapshot = self.published.load();
        Some(snapshot.spec(picks.first()?)?.id.clone())
    }
}
