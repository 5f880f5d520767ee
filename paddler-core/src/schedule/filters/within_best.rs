//! Who is nearly as good as the best?

use std::sync::Arc;

use crate::schedule::{CandidateSet, Class, Cost, Filter, FilterError, Lack, PickCx, Reads, Reason};
use crate::upstream::UpstreamIndex;

/// How far from the best is near enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Margin {
    /// The best cost times this, 1 or more: 1.2 is "within 20 %".
    Times(f32),
    /// The best cost plus this, 0 or more, in the cost's own unit.
    Plus(f32),
}

/// Keeps upstreams whose cost is near the best. See [`within_best`].
#[derive(Debug, Clone)]
pub struct WithinBest {
    cost: Arc<dyn Cost>,
    margin: Margin,
}

/// Keeps upstreams whose cost is near the best one. An unknown cost counts as the median of the known ones; none known:
/// keeps everybody. NaN goes out, unless it is all there is.
pub fn within_best(cost: impl Cost, margin: Margin) -> WithinBest {
    WithinBest {
        cost: Arc::new(cost),
        margin,
    }
}

impl Filter for WithinBest {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        let cost = |upstream| self.cost.cost(cx, upstream);
        let number = |upstream| cost(upstream).filter(|cost| !cost.is_nan());
        let Some(best) = set.iter().filter_map(number).min_by(f32::total_cmp) else {
            return Ok(());
        };
        let edge = match self.margin {
            // A best cost below zero gets worse towards zero.
            Margin::Times(factor) if best < 0.0 => best / factor,
            Margin::Times(factor) => best * factor,
            Margin::Plus(more) => best + more,
        }
        // The best itself always stays, whatever the margin.
        .max(best);
        let unknown = set.median(|upstream| number(upstream).map(f64::from));
        let unknown_stays = unknown.is_some_and(|median| median <= f64::from(edge));
        set.retain(|upstream| cost(upstream).map_or(unknown_stays, |cost| cost <= edge));
        Ok(())
    }

    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        self.cost.cost(cx, upstream).map(f64::from)
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Later, Reason::NoUpstream)
    }

    fn reads(&self) -> Reads {
        self.cost.reads()
    }
}
