//! Where does chance come from?
//!
//! From a seed that is an argument. Each node draws from a stream of its own, so that a node added elsewhere in the tree
//! changes nothing here, and a record replays.

use super::node::NodeId;

/// Mixes a number well (the finaliser of splitmix64, Steele, Lea and Flood 2014).
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The next of a row of seeds that threads share.
#[cfg(feature = "proxy")]
pub(crate) fn next_seed(row: &std::sync::atomic::AtomicU64) -> u64 {
    mix(row.fetch_add(Draw::STEP, std::sync::atomic::Ordering::Relaxed))
}

/// A stream of draws.
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(crate) fn new(seed: u64, node: NodeId) -> Self {
        Self(mix(seed.wrapping_add(Self::STEP)) ^ mix(u64::from(node.0).wrapping_mul(Self::STEP)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::STEP);
        mix(self.0)
    }

    /// A whole number below `n`, each as likely but for a part in 2^64; zero if `n` is zero.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// A stable hash of text (FNV-1a, mixed): the same in every process and on every machine.
pub(crate) fn stable_hash(text: &[u8]) -> u64 {
    stable_hash_of([text])
}

/// The same of a text in pieces, wherever it is cut.
pub(crate) fn stable_hash_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    mix(pieces.into_iter().flatten().fold(0xcbf2_9ce4_8422_2325, fold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_even_and_differ_by_node_and_seed() {
        let mut counts = [0u32; 7];
        for seed in 0..7_000 {
            counts[Draw::new(seed, NodeId(3)).below(7)] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
        let of = |seed, node| Draw::new(seed, NodeId(node)).next();
        assert_ne!(of(1, 1), of(1, 2));
        assert_ne!(of(1, 1), of(2, 1));
        assert_eq!(Draw::new(1, NodeId(1)).below(0), 0);
    }
}
