//! How are places told apart in words of bits?

/// Places in a word of a candidate set and in a chunk of the ledger. Columns are padded to whole words.
pub(crate) const LANES: usize = u64::BITS as usize;

/// Whether the bit of this place is set. Beyond the end, none is.
pub(crate) fn bit(words: &[u64], place: usize) -> bool {
    words
        .get(place / LANES)
        .is_some_and(|word| word >> (place % LANES) & 1 == 1)
}

/// Sets the bit of this place, if there is one.
pub(crate) fn set(words: &mut [u64], place: usize) {
    if let Some(word) = words.get_mut(place / LANES) {
        *word |= 1 << (place % LANES);
    }
}
