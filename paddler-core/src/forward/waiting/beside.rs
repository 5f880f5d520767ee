//! Who has a place, where room at some upstreams is held back for others?
//!
//! The tree knows nothing of it: they are left out of the walk. What the walk without them ends with is not what is told,
//! since they are not gone: it is asked again with them.

use super::finder::{Finder, News, Place};
use crate::Moment;
use crate::queue::Tried;
use crate::request::RequestFacts;
use crate::schedule::{Ending, Outcome};
use crate::upstream::UpstreamId;

/// Who is left out of this walk.
fn besides(tried: &Tried, kept: &[UpstreamId], now: Moment) -> Vec<UpstreamId> {
    let mut except = tried.left_out(now);
    except.extend_from_slice(kept);
    except
}

impl Finder {
    /// Picks and reserves as [`place`](Self::place) does, and nothing at those that are kept for others.
    pub(super) fn place_beside(
        &self,
        kept: &[UpstreamId],
        (facts, tried): (&RequestFacts, &Tried),
        now: Moment,
        news: News,
    ) -> Result<Place, Ending> {
        let ending = match self.place(facts, &besides(tried, kept, now), now, news) {
            Err(ending) if !kept.is_empty() => ending,
            result => return result,
        };
        Err(match self.look(facts, facts.weight, &tried.left_out(now), now) {
            Some(Outcome::Picked(_)) => Ending::contended(),
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
