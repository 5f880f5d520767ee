//! Who is still in question?

use super::context::PickCx;
use super::cost::{Cost, order};
use super::filter::FilterError;
use super::lanes::{self, is_few, least_of_few, least_of_word};
use crate::upstream::{LANES, UpstreamIndex, bit, set, upstreams};

/// Memory for candidate sets and the values they are compared by. Grows with the snapshot, and never in steady state.
#[derive(Debug, Default, Clone)]
pub(crate) struct Arena {
    words: Vec<u64>,
    values: Vec<f64>,
    costs: Vec<Option<f32>>,
    orders: Vec<i32>,
    least: Vec<UpstreamIndex>,
}

impl Arena {
    /// The set with the bits that `word` gives for each word.
    pub(crate) fn candidates(&mut self, words: usize, word: impl Fn(usize) -> u64) -> CandidateSet<'_> {
        self.words.clear();
        self.words.extend((0..words).map(word));
        let some = any(&self.words);
        CandidateSet {
            arena: self,
            base: 0,
            words,
            some,
        }
    }
}

/// Takes a column to fill it anew, with room for all of so many words: however many are left at this walk, no later one has to grow it.
fn emptied<T>(column: &mut Vec<T>, words: usize) -> Vec<T> {
    let mut column = std::mem::take(column);
    column.clear();
    column.reserve(words * LANES);
    column
}

fn any(words: &[u64]) -> bool {
    words.iter().any(|word| *word != 0)
}

fn median(values: &mut [f64]) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The upstreams that are still in question. It can only shrink: nothing here adds one.
///
/// A bit for each place of the snapshot, in memory that the caller of the pick owns.
#[derive(Debug)]
pub struct CandidateSet<'a> {
    arena: &'a mut Arena,
    base: usize,
    words: usize,
    /// Whether somebody is left. How many is asked seldom, and is counted then.
    some: bool,
}

impl CandidateSet<'_> {
    /// How many are left. It counts: whether anybody is, [`is_empty`](Self::is_empty) says at once.
    pub fn len(&self) -> usize {
        self.bits().iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether nobody is left.
    pub fn is_empty(&self) -> bool {
        !self.some
    }

    /// Whether one is left, and no other.
    pub(crate) fn is_one(&self) -> bool {
        let mut words = self.bits().iter().filter(|word| **word != 0);
        words.next().is_some_and(|word| word.is_power_of_two()) && words.next().is_none()
    }

    /// Whether this one is left.
    pub fn contains(&self, upstream: UpstreamIndex) -> bool {
        bit(self.bits(), upstream.get())
    }

    /// Those that are left, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = UpstreamIndex> + '_ {
        self.bits()
            .iter()
            .enumerate()
            .flat_map(|(word, bits)| upstreams(word, *bits))
    }

    /// Takes one out. For many, [`retain`](Self::retain) looks at each word once.
    pub fn remove(&mut self, upstream: UpstreamIndex) {
        if self.contains(upstream) {
            self.bits_mut()[upstream.get() / LANES] &= !(1 << (upstream.get() % LANES));
            self.some = any(self.bits());
        }
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.bits_mut().fill(0);
        self.some = false;
    }

    /// Keeps those that `keep` says yes to.
    pub fn retain(&mut self, mut keep: impl FnMut(UpstreamIndex) -> bool) {
        self.retain_words(|word, bits| lanes::keep(word, bits, &mut keep));
    }

    /// Keeps those whose bit is set in `mask`, one word at a time. Places beyond its end go out.
    pub(crate) fn intersect(&mut self, mask: &[u64]) {
        self.retain_words(|word, bits| bits & mask.get(word).copied().unwrap_or(0));
    }

    /// Takes those out whose bit is set in `mask`, one word at a time. Places beyond its end stay.
    pub(crate) fn exclude(&mut self, mask: &[u64]) {
        self.retain_words(|word, bits| bits & !mask.get(word).copied().unwrap_or(0));
    }

    /// Keeps those that are among `these`.
    pub(crate) fn keep(&mut self, these: impl Iterator<Item = UpstreamIndex>) {
        let top = self.arena.words.len();
        self.arena.words.resize(top + self.words, 0);
        let (_, kept) = self.arena.words.split_at_mut(top);
        these.for_each(|upstream| set(kept, upstream.get()));
        for word in 0..self.words {
            self.arena.words[self.base + word] &= self.arena.words[top + word];
        }
        self.arena.words.truncate(top);
        self.some = any(self.bits());
    }

    /// Keeps, of each word's bits, those that `keep` returns of them.
    pub(crate) fn retain_words(&mut self, mut keep: impl FnMut(usize, u64) -> u64) {
        let mut left = 0;
        for (word, bits) in self.bits_mut().iter_mut().enumerate() {
            if *bits != 0 {
                *bits &= keep(word, *bits);
                left |= *bits;
            }
        }
        self.some = left != 0;
    }

    /// The `n`th that is left, counted from zero.
    pub(crate) fn nth(&self, mut n: usize) -> Option<UpstreamIndex> {
        for (word, bits) in self.bits().iter().enumerate() {
            let here = bits.count_ones() as usize;
            if n < here {
                return upstreams(word, *bits).nth(n);
            }
            n -= here;
        }
        None
    }

    /// Narrows, and takes that back if it says so or nobody is left. Returns whether it is narrowed.
    pub(crate) fn attempt(&mut self, narrow: impl FnOnce(&mut Self) -> bool) -> bool {
        let (top, before) = (self.arena.words.len(), self.some);
        let words = self.base..self.base + self.words;
        self.arena.words.extend_from_within(words);
        let narrowed = narrow(self) && self.some;
        if !narrowed {
            self.arena.words.copy_within(top..top + self.words, self.base);
            self.some = before;
        }
        self.arena.words.truncate(top);
        narrowed
    }

    /// Does something with a copy. If it then says so, the copy takes the place of this set.
    pub(crate) fn fork<R>(
        &mut self,
        with: impl FnOnce(&mut CandidateSet<'_>) -> R,
        commit: impl FnOnce(&R) -> bool,
    ) -> R {
        let top = self.arena.words.len();
        self.arena
            .words
            .extend_from_within(self.base..self.base + self.words);
        let mut copy = CandidateSet {
            arena: &mut *self.arena,
            base: top,
            words: self.words,
            some: self.some,
        };
        let result = with(&mut copy);
        let some = copy.some;
        if commit(&result) {
            self.arena.words.copy_within(top..top + self.words, self.base);
            self.some = some;
        }
        self.arena.words.truncate(top);
        result
    }

    /// Keeps those that at least one of `parts` ways of narrowing keeps, each starting from the whole set; or, inverted,
    /// those that none of them keeps.
    pub(crate) fn keep_any<E>(
        &mut self,
        parts: usize,
        invert: bool,
        mut narrow: impl FnMut(usize, &mut CandidateSet<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let kept = self.arena.words.len();
        self.arena.words.resize(kept + self.words, 0);
        let gather = |copy: &mut CandidateSet<'_>| {
            for word in 0..copy.words {
                copy.arena.words[kept + word] |= copy.arena.words[copy.base + word];
            }
        };
        let result = (0..parts)
            .try_for_each(|part| self.fork(|copy| narrow(part, copy).map(|()| gather(copy)), |_| false));
        for word in 0..self.words {
            let keep = self.arena.words[kept + word];
            self.arena.words[self.base + word] &= if invert { !keep } else { keep };
        }
        self.arena.words.truncate(kept);
        self.some = any(self.bits());
        result
    }

    /// The middle one of the values that are known, the lower one of two; `None` if none is.
    pub(crate) fn median(&mut self, value: impl Fn(UpstreamIndex) -> Option<f64>) -> Option<f64> {
        let mut values = emptied(&mut self.arena.values, self.words);
        values.extend(self.iter().filter_map(value));
        let median = median(&mut values);
        self.arena.values = values;
        median
    }

    /// Asks a cost of each candidate, once, and hands over the answers in the order of places.
    pub(crate) fn with_costs<R>(
        &mut self,
        cx: &PickCx<'_>,
        cost: &dyn Cost,
        with: impl FnOnce(&mut Self, &mut Vec<Option<f32>>) -> R,
    ) -> Result<R, FilterError> {
        let mut costs = emptied(&mut self.arena.costs, self.words);
        let judged = cost.costs(cx, self, &mut costs);
        let result = judged.map(|()| with(self, &mut costs));
        self.arena.costs = costs;
        result
    }

    /// Hands over the cost of each candidate, in the order of places, as [`order`] has it; the unknown is the median of
    /// the known.
    pub(crate) fn with_orders<R>(
        &mut self,
        cx: &PickCx<'_>,
        cost: &dyn Cost,
        with: impl FnOnce(&mut Self, &mut Vec<i32>) -> R,
    ) -> Result<R, FilterError> {
        let mut orders = emptied(&mut self.arena.orders, self.words);
        let judged = self.with_costs(cx, cost, |set, costs| {
            let unknown = if costs.contains(&None) {
                set.median_cost(costs)
            } else {
                None
            };
            let unknown = unknown.unwrap_or(0.0);
            orders.extend(costs.iter().map(|cost| order(cost.unwrap_or(unknown))));
        });
        let result = judged.map(|()| with(self, &mut orders));
        self.arena.orders = orders;
        result
    }

    /// Finds those of the least cost, in the order of places, and hands them over. `None` where that has to be asked of one upstream
    /// at a time: the cost is not made for it, or is not known of all.
    pub(crate) fn with_least<R>(
        &mut self,
        cx: &PickCx<'_>,
        cost: &dyn Cost,
        with: impl FnOnce(&[UpstreamIndex]) -> R,
    ) -> Option<R> {
        if !cost.by_words() {
            return None;
        }
        let mut least = emptied(&mut self.arena.least, self.words);
        let mut best = f32::INFINITY;
        let mut words = self.bits().iter().enumerate().filter(|(_, bits)| **bits != 0);
        let known = words.all(|(word, bits)| {
            if is_few(*bits) {
                least_of_few(cx, cost, (word, *bits), &mut best, &mut least)
            } else {
                least_of_word(cx, cost, (word, *bits), &mut best, &mut least)
            }
        });
        let result = known.then(|| with(&least));
        self.arena.least = least;
        result
    }

    /// The middle one of the costs that are numbers, the lower one of two; `None` if none is.
    pub(crate) fn median_cost(&mut self, costs: &[Option<f32>]) -> Option<f32> {
        let mut values = emptied(&mut self.arena.values, self.words);
        values.extend(
            costs
                .iter()
                .flatten()
                .filter(|cost| !cost.is_nan())
                .map(|cost| f64::from(*cost)),
        );
        let median = median(&mut values).map(|median| median as f32);
        self.arena.values = values;
        median
    }

    pub(crate) fn bits(&self) -> &[u64] {
        &self.arena.words[self.base..self.base + self.words]
    }

    fn bits_mut(&mut self) -> &mut [u64] {
        &mut self.arena.words[self.base..self.base + self.words]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(set: &CandidateSet<'_>) -> Vec<usize> {
        set.iter().map(UpstreamIndex::get).collect()
    }

    #[test]
    fn a_fork_leaves_the_set_alone_unless_it_is_committed() {
        let mut arena = Arena::default();
        let mut set = arena.candidates(2, |word| if word == 0 { 0b1011 } else { 1 });
        assert_eq!(members(&set), [0, 1, 3, 64]);
        set.fork(|copy| copy.retain(|upstream| upstream.get() != 3), |()| false);
        assert_eq!((set.len(), members(&set)), (4, vec![0, 1, 3, 64]));
        set.fork(
            |copy| {
                copy.remove(UpstreamIndex(0));
                copy.fork(|inner| inner.remove(UpstreamIndex(64)), |()| true);
            },
            |()| true,
        );
        assert_eq!((set.len(), members(&set)), (2, vec![1, 3]));
        assert_eq!(set.nth(1), Some(UpstreamIndex(3)));
        assert_eq!(set.nth(2), None);
    }

    #[test]
    fn the_median_is_the_lower_middle_of_the_known() {
        let mut arena = Arena::default();
        let mut set = arena.candidates(1, |_| 0b11111);
        let values = [Some(9.0), None, Some(1.0), Some(4.0), Some(2.0)];
        assert_eq!(set.median(|upstream| values[upstream.get()]), Some(2.0));
        assert_eq!(set.median(|_| None), None);
    }

    #[test]
    fn a_mask_shorter_than_the_set_takes_the_rest_out() {
        let mut arena = Arena::default();
        let mut set = arena.candidates(2, |_| u64::MAX);
        set.intersect(&[0b110]);
        assert_eq!(members(&set), [1, 2]);
    }
}
