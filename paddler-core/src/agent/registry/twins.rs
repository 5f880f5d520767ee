//! Under which id does an engine count that is told of under several?

use super::{Place, Registry};
use crate::upstream::UpstreamId;

impl Registry {
    /// An upstream is told to be there now.
    pub(super) fn arrive(&mut self, id: &UpstreamId, place: Option<Place>) {
        let Some(place) = place else { return };
        let ids = self.places.entry(place).or_default();
        ids.push(id.clone());
        if let Some(first) = ids.first().filter(|first| *first != id) {
            tracing::warn!(upstream = %id, counts = %first, "two ids are told of one engine: it counts once");
        }
        self.rank(id);
    }

    /// And no more.
    pub(super) fn depart(&mut self, id: &UpstreamId, place: Option<Place>) {
        let Some(place) = place else { return };
        let Some(ids) = self.places.get_mut(&place) else {
            return;
        };
        ids.retain(|one| one != id);
        match ids.first().cloned() {
            Some(first) => self.mark(first),
            None => drop(self.places.remove(&place)),
        }
    }

    /// Of those who tell of one engine, the one counts that speaks; of several, the one that did so before.
    pub(super) fn rank(&mut self, id: &UpstreamId) {
        let place = self.known.get(id).and_then(|known| known.place.as_ref());
        let Some(ids) = place.and_then(|place| self.places.get_mut(place)) else {
            return;
        };
        let before = ids.first().cloned();
        let known = &self.known;
        ids.sort_by_key(|id| known.get(id).is_none_or(|known| known.stale));
        let now = ids.first().cloned();
        if before != now {
            // Who joins does so before the other leaves.
            now.into_iter().chain(before).for_each(|id| self.mark(id));
        }
    }

    /// The id under which the engine counts that is told of under this one.
    pub(in crate::agent) fn counts_as<'a>(&'a self, id: &'a UpstreamId) -> &'a UpstreamId {
        let place = self.known.get(id).and_then(|known| known.place.as_ref());
        let ids = place.and_then(|place| self.places.get(place));
        ids.and_then(|ids| ids.first()).unwrap_or(id)
    }
}
