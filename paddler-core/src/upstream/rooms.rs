//! How much room has each model at an upstream that is several: a router with engines for different models?
//!
//! What is free for one model is not free for another. So such an upstream tells its room by model, and our own requests are counted
//! in the same way, each in a cell of its model, in the form of the [word](super::reserve) of the whole upstream. A walk looks at
//! the narrower of the two.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::status::ModelRoom;
use crate::upstream::reserve::{Reserve, ReserveWord};
use crate::upstream::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Our own weight for one model, or for several that the same engines have, and how much may be open.
#[derive(Debug, Default)]
pub(crate) struct RoomCell {
    word: ReserveWord,
    /// The number of the last sample (40 bits), and our own weight then (24).
    sampled: AtomicU64,
}

/// What is taken of a room. Dropped, it is given back.
#[derive(Debug)]
pub(crate) struct RoomTaken {
    cell: Arc<RoomCell>,
    weight: u32,
}

/// One room as it was last told.
#[derive(Debug, Clone)]
struct Room {
    cell: Arc<RoomCell>,
    limit: u32,
    /// Weight there that is not ours.
    others: u32,
}

/// The rooms of one upstream. Cells go on from report to report, since leases hold them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rooms {
    all: Vec<Room>,
    of: HashMap<Arc<str>, usize>,
}

impl RoomCell {
    const OWN: u64 = (1 << 24) - 1;

    fn own_at(&self, sample: u64) -> u32 {
        let sampled = self.sampled.load(Relaxed);
        if sampled >> 24 == sample & (u64::MAX >> 24) {
            (sampled & Self::OWN) as u32
        } else {
            self.word.load().weight()
        }
    }
}

impl Drop for RoomTaken {
    fn drop(&mut self) {
        self.cell.word.release(self.weight);
    }
}

impl Rooms {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    fn room(&self, model: &str) -> Option<&Room> {
        self.all.get(*self.of.get(model)?)
    }

    /// Our own weight and limit for a model, where it has a room of its own.
    pub(crate) fn reserve(&self, model: &str) -> Option<Reserve> {
        self.room(model).map(|room| room.cell.word.load())
    }

    /// Takes room for a model. The outer `None`: there is none left; the inner: it has none of its own.
    pub(crate) fn take(&self, model: Option<&str>, weight: u32) -> Option<Option<RoomTaken>> {
        let Some(room) = model.and_then(|model| self.room(model)) else {
            return Some(None);
        };
        let word = &room.cell.word;
        let weight = word.take(word.load().tenancy(), weight)?;
        let cell = room.cell.clone();
        Some(Some(RoomTaken { cell, weight }))
    }

    /// To be noted when a sample of this number is taken.
    pub(crate) fn sample(&self, sample: u64) {
        for room in &self.all {
            let own = u64::from(room.cell.word.load().weight());
            room.cell
                .sampled
                .store(sample << 24 | own & RoomCell::OWN, Relaxed);
        }
    }

    /// What is told of them with a report that was asked with this sample.
    pub(crate) fn told(&self, told: &[ModelRoom], sample: u64) -> Self {
        let (mut rooms, mut goes_on) = (Self::default(), HashSet::new());
        for one in told {
            // A room that is told under other names than before goes on with the requests of the first that it had.
            let mut before = one.models.iter().filter_map(|model| self.of.get(model));
            let before = before
                .find(|at| goes_on.insert(**at))
                .and_then(|at| self.all.get(*at));
            let cell = before.map(|room| room.cell.clone()).unwrap_or_default();
            let others = one.load.saturating_sub(cell.own_at(sample));
            cell.word.set_limit(one.limit.saturating_sub(others));
            let at = rooms.all.len();
            rooms
                .of
                .extend(one.models.iter().map(|model| (model.clone(), at)));
            let limit = one.limit;
            rooms.all.push(Room { cell, limit, others });
        }
        rooms
    }

    /// Limit and load for a model, with what makes it another room than others.
    pub(crate) fn of(&self, model: &str) -> Option<(usize, u32, u32)> {
        let at = *self.of.get(model)?;
        let room = self.all.get(at)?;
        let load = room.cell.word.load().weight().saturating_add(room.others);
        Some((at, room.limit, load))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(models: &[&str], limit: u32, load: u32) -> ModelRoom {
        ModelRoom {
            models: models.iter().map(|model| (*model).into()).collect(),
            limit,
            load,
        }
    }

    #[test]
    fn each_model_has_its_own_room_and_ours_is_counted_once() {
        let rooms = Rooms::default().told(&[told(&["a", "b"], 2, 1), told(&["c"], 1, 0)], 1);
        let first = rooms.take(Some("a"), 1).unwrap();
        assert!(first.is_some());
        assert!(
            rooms.take(Some("b"), 1).is_none(),
            "one is others', and one is ours"
        );
        let other = rooms.take(Some("c"), 1).unwrap();
        assert!(
            rooms.take(Some("d"), 1).unwrap().is_none(),
            "it has no room of its own"
        );
        assert!(rooms.take(None, 1).unwrap().is_none());

        rooms.sample(2);
        // What ends after the sample is in what is told, and was ours.
        drop(other);
        let rooms = rooms.told(&[told(&["a", "b"], 2, 1), told(&["c"], 1, 1)], 2);
        assert_eq!(
            rooms.reserve("a").map(|word| (word.limit(), word.weight())),
            Some((2, 1))
        );
        assert_eq!(
            rooms.reserve("c").map(|word| (word.limit(), word.weight())),
            Some((1, 0))
        );
        assert_eq!(rooms.of("b"), Some((0, 2, 1)));
        let second = rooms.take(Some("b"), 1).unwrap();
        assert!(rooms.take(Some("a"), 1).is_none());

        // Told apart from now on: what was taken is given back where it was taken.
        let apart = rooms.told(&[told(&["b"], 1, 1), told(&["a"], 1, 0)], 3);
        drop((first, second));
        assert_eq!(apart.reserve("b").map(Reserve::weight), Some(0));
        assert_eq!(apart.reserve("a").map(Reserve::weight), Some(0));
        assert!(Rooms::default().told(&[], 9).is_empty());
    }
}
