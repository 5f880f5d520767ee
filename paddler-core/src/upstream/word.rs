//! How are places told apart in words of bits?

use super::UpstreamIndex;

/// Places in a word of a candidate set and in a chunk of the ledger. Columns are padded to whole words.
pub(crate) const LANES: usize = u64::BITS as usize;

/// Whether the bit of this place is set. Beyond the end, none is.
pub(crate) fn bit(words: &[u64], place: usize) -> bool {
    words.get(place / LANES).is_some_and(|word| is_in(*word, place))
}

/// Whether the bit of this place is set in its word.
pub(crate) fn is_in(word: u64, place: usize) -> bool {
    word >> (place % LANES) & 1 == 1
}

/// Sets the bit of this place, if there is one.
pub(crate) fn set(words: &mut [u64], place: usize) {
    if let Some(word) = words.get_mut(place / LANES) {
        *word |= 1 << (place % LANES);
    }
}

/// The lanes whose bit is set, from the lowest on.
pub(crate) struct Bits(pub(crate) u64);

impl Iterator for Bits {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let lane = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        // It is less in any case: whoever indexes by it need not look.
        Some(lane % LANES)
    }
}

/// The upstreams whose bit is set in this word, in the order of their places.
pub(crate) fn upstreams(word: usize, bits: u64) -> impl Iterator<Item = UpstreamIndex> {
    let base = (word * LANES) as u32;
    Bits(bits).map(move |lane| UpstreamIndex(base + lane as u32))
}
