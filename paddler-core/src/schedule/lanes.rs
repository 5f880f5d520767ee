//! How are the upstreams of a word of bits looked at, many at once?

use super::context::PickCx;
use super::cost::Cost;
use crate::upstream::{LANES, UpstreamIndex, upstreams};

/// Of a word's bits, those whose lane passes. `keep` is asked of lanes that are out, too, when most are in: a loop over
/// all lanes without a branch is what a compiler makes vector instructions of.
pub(crate) fn mask(bits: u64, keep: impl Fn(usize) -> bool) -> u64 {
    if is_few(bits) {
        return self::keep(0, bits, |upstream| keep(upstream.get()));
    }
    let mut passes = [0u8; LANES];
    for (lane, passes) in passes.iter_mut().enumerate() {
        *passes = u8::from(keep(lane));
    }
    // Eight bytes of 0 or 1 at a time: the product has them side by side in its highest byte.
    let (eights, _) = passes.as_chunks::<8>();
    let side_by_side = |eight| u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    let kept = eights
        .iter()
        .rev()
        .fold(0, |kept, eight| kept << 8 | side_by_side(*eight));
    bits & kept
}

/// Whether it is less work to look at these one by one.
pub(crate) fn is_few(bits: u64) -> bool {
    const FEW: u32 = 16;
    bits.count_ones() < FEW
}

/// Of the bits of this word, those whose upstream passes.
pub(crate) fn keep(word: usize, bits: u64, mut keep: impl FnMut(UpstreamIndex) -> bool) -> u64 {
    upstreams(word, bits).fold(0, |kept, upstream| {
        kept | u64::from(keep(upstream)) << (upstream.get() % LANES)
    })
}

/// Adds those who are no worse than the `best` of the words before; whoever is better takes the place of all. Returns whether all
/// costs are known.
pub(super) fn least_of_few(
    cx: &PickCx<'_>,
    cost: &dyn Cost,
    (word, bits): (usize, u64),
    best: &mut f32,
    least: &mut Vec<UpstreamIndex>,
) -> bool {
    for upstream in upstreams(word, bits) {
        let Ok(Some(cost)) = cost.cost(cx, upstream) else {
            return false;
        };
        if cost < *best {
            *best = cost;
            least.clear();
        }
        if cost == *best {
            least.push(upstream);
        } else if cost.is_nan() {
            return false;
        }
    }
    true
}

/// The same for a word with many: all costs at once.
pub(super) fn least_of_word(
    cx: &PickCx<'_>,
    cost: &dyn Cost,
    (word, bits): (usize, u64),
    best: &mut f32,
    least: &mut Vec<UpstreamIndex>,
) -> bool {
    const HALF: usize = LANES / 2;
    let mut costs = [0.0; LANES];
    cost.costs_of_word(cx, word, &mut costs);
    let (mut unknown, mut lowest) = (false, [f32::INFINITY; HALF]);
    for (half, costs) in costs.as_chunks::<HALF>().0.iter().enumerate() {
        // A bit for each lane in its own place, with no shift by another number for each.
        let bits = (bits >> (half * HALF)) as u32;
        for (lane, lowest) in lowest.iter_mut().enumerate() {
            let is_in = bits & (1 << lane) != 0;
            let cost = if is_in { costs[lane] } else { f32::INFINITY };
            unknown |= cost.is_nan();
            *lowest = if cost < *lowest { cost } else { *lowest };
        }
    }
    let lowest = lowest.into_iter().fold(f32::INFINITY, f32::min);
    if unknown || lowest > *best {
        return !unknown;
    }
    if lowest < *best {
        *best = lowest;
        least.clear();
    }
    let ties = mask(bits, |lane| costs[lane] == lowest);
    least.extend(upstreams(word, ties));
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::is_in;

    #[test]
    fn a_mask_is_the_same_for_few_and_for_many() {
        for bits in [
            0,
            1,
            1 << 63,
            0x8000_0000_0000_0001,
            0xffff,
            0xaaaa_aaaa_aaaa_aaaa,
            u64::MAX,
        ] {
            for keep in [0, 1, 1 << 63, 0x1234_5678_9abc_def0, u64::MAX] {
                assert_eq!(mask(bits, |lane| is_in(keep, lane)), bits & keep);
            }
        }
    }
}
