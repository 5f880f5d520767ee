//! Which costs are built in?

use std::fmt;
use std::sync::Arc;

use super::context::{PickCx, Reads, lanes};
use super::cost::Cost;
use super::filter::FilterError;
use super::node::words;
use crate::status::UNKNOWN;
use crate::upstream::{LANES, UpstreamIndex};

/// Requests waiting there. See [`queue`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Queue;

/// The number of requests waiting there; corrected, at least what exceeds its room. Unknown where it does not say.
pub fn queue() -> Queue {
    Queue
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("queue")
    }
}

impl Cost for Queue {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        Ok(cx.waiting(upstream).map(|waiting| waiting as f32))
    }

    fn by_words(&self) -> bool {
        true
    }

    fn costs_of_word(&self, cx: &PickCx<'_>, word: usize, into: &mut [f32; LANES]) {
        let waiting = cx.waiting_lanes(word);
        for (cost, waiting) in into.iter_mut().zip(waiting) {
            *cost = if waiting == UNKNOWN {
                f32::NAN
            } else {
                waiting as f32
            };
        }
    }

    fn reads(&self) -> Reads {
        Reads::QUEUE
    }
}

/// Load as a share of room. See [`in_flight_share`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InFlightShare;

/// All load as a share of what the engine works on at once: our own open weight, and others' as of the last report. So a
/// machine with 8 slots and 2 busy is better than one with 2 slots and 1 busy. Unknown where the room is not known.
pub fn in_flight_share() -> InFlightShare {
    InFlightShare
}

impl fmt::Debug for InFlightShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("in_flight_share")
    }
}

impl Cost for InFlightShare {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        Ok(cx.load_share(upstream).map(|share| share as f32))
    }

    fn by_words(&self) -> bool {
        true
    }

    fn costs_of_word(&self, cx: &PickCx<'_>, word: usize, into: &mut [f32; LANES]) {
        let (load, room) = (cx.load_lanes(word), lanes(&cx.snapshot.columns.room, word));
        for lane in 0..LANES {
            let is_known = (room[lane] != UNKNOWN) & (room[lane] > 0);
            let share = (f64::from(load[lane]) / f64::from(room[lane])) as f32;
            into[lane] = if is_known { share } else { f32::NAN };
        }
    }

    fn reads(&self) -> Reads {
        Reads::WEIGHT
    }
}

/// How near the KV cache is to full. See [`kv_pressure`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KvPressure;

/// `k / (1 - k)` of the KV-cache usage `k`: flat while there is room, and without bound as it runs out, which is when
/// engines begin to evict requests. 0.5 costs 1, 0.9 costs 9. Unknown where the engine does not say.
pub fn kv_pressure() -> KvPressure {
    KvPressure
}

impl fmt::Debug for KvPressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("kv_pressure")
    }
}

impl Cost for KvPressure {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        Ok(cx.kv_cache_usage(upstream).map(pressure))
    }

    fn by_words(&self) -> bool {
        true
    }

    fn costs_of_word(&self, cx: &PickCx<'_>, word: usize, into: &mut [f32; LANES]) {
        let used = lanes(&cx.snapshot.columns.kv, word);
        for (cost, used) in into.iter_mut().zip(used) {
            *cost = pressure(*used);
        }
    }

    fn reads(&self) -> Reads {
        Reads::NONE
    }
}

/// Of a usage that is not known, NaN.
fn pressure(used: f64) -> f32 {
    let used = used.clamp(0.0, 1.0);
    // One part in a thousand left is as good as none.
    (used / (1.0 - used).max(1e-3)) as f32
}

/// Prompt work ahead times requests in flight. See [`prefill_product`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrefillProduct;

/// `(P + n) * (A + 1)`: `P` prompt tokens that we have sent there and that no first byte has answered, `n` those of this
/// request, `A` all load there (LMetric, arXiv 2603.15202). It weighs waiting for prompts against sharing the decode
/// batch, and has nothing to tune.
///
/// Tokens are estimated from bytes (see [`RequestFacts::from_scan`](crate::request::RequestFacts::from_scan)): low by up
/// to 2.5 times for code and CJK, but by the same factor for the same text on every upstream, so the order of upstreams
/// suffers only when texts of different kinds are in flight. Always known, since it is our own count; a request without
/// a prompt counts as one token, so that load still tells upstreams apart.
pub fn prefill_product() -> PrefillProduct {
    PrefillProduct
}

impl fmt::Debug for PrefillProduct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("prefill_product")
    }
}

impl Cost for PrefillProduct {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        let ahead = tokens_ahead(cx.prefill_tokens(upstream));
        let tokens = ahead + cx.facts.tokens.max(1) as f32;
        Ok(Some(tokens * (cx.load(upstream) as f32 + 1.0)))
    }

    fn by_words(&self) -> bool {
        true
    }

    fn costs_of_word(&self, cx: &PickCx<'_>, word: usize, into: &mut [f32; LANES]) {
        let (load, mine) = (cx.load_lanes(word), cx.facts.tokens.max(1) as f32);
        *into = [0.0; LANES];
        for (lane, tokens) in cx.prefill_in_use(word) {
            into[lane] = tokens_ahead(tokens);
        }
        for (cost, load) in into.iter_mut().zip(load) {
            *cost = (*cost + mine) * (load as f32 + 1.0);
        }
    }

    fn reads(&self) -> Reads {
        Reads::WEIGHT | Reads::PREFILL
    }
}

fn tokens_ahead(tokens: u64) -> f32 {
    // Far below 2^63, and a signed number is converted in one instruction.
    tokens.cast_signed() as f32
}

/// Several costs, each times its weight. See [`weighted`].
#[derive(Clone)]
pub struct Weighted(Vec<(f32, Arc<dyn Cost>)>);

/// The sum of costs, each times its weight. Unknown where any part is unknown. Units are not made alike: a weight has to
/// do that.
pub fn weighted(parts: impl IntoIterator<Item = (f32, Arc<dyn Cost>)>) -> Weighted {
    Weighted(parts.into_iter().collect())
}

impl fmt::Debug for Weighted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.0.iter().map(|(weight, cost)| format!("{weight} {cost:?}"));
        write!(f, "weighted [{}]", words(parts))
    }
}

impl Cost for Weighted {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        let mut sum = Some(0.0);
        for (weight, part) in &self.0 {
            let cost = part.cost(cx, upstream)?;
            sum = sum.zip(cost).map(|(sum, cost)| sum + weight * cost);
        }
        Ok(sum)
    }

    fn by_words(&self) -> bool {
        self.0.iter().all(|(_, part)| part.by_words())
    }

    fn costs_of_word(&self, cx: &PickCx<'_>, word: usize, into: &mut [f32; LANES]) {
        let mut costs = [0.0; LANES];
        *into = [0.0; LANES];
        for (weight, part) in &self.0 {
            part.costs_of_word(cx, word, &mut costs);
            for (sum, cost) in into.iter_mut().zip(costs) {
                *sum += weight * cost;
            }
        }
    }

    fn reads(&self) -> Reads {
        self.0
            .iter()
            .map(|(_, part)| part.reads())
            .fold(Reads::NONE, |all, one| all | one)
    }
}
