//! Who is nearly as good as the best?

use std::fmt;
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
#[derive(Clone)]
pub struct WithinBest {
    cost: Arc<dyn Cost>,
    margin: Margin,
}

/// Keeps upstreams whose cost is near the best one. An unknown cost counts as the median of the known ones; none known:
/// keeps everybody. NaN goes out, unless it is all there is.
pub fn within_best(cost: impl Cost, margin: Margin) -> WithinBest {
    WithinBest {
        cost: cost.into_shared(),
        margin,
    }
}

impl fmt::Debug for WithinBest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "within_best {:?} ", self.cost)?;
        match self.margin {
            Margin::Times(factor) => write!(f, "times {factor}"),
            Margin::Plus(more) => write!(f, "plus {more}"),
        }
    }
}

impl Filter for WithinBest {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.with_costs(cx, &*self.cost, |set, costs| {
            let numbers = costs.iter().flatten().copied().filter(|cost| !cost.is_nan());
            let Some(best) = numbers.min_by(f32::total_cmp) else {
                return;
            };
            let edge = match self.margin {
                // A best cost below zero gets worse towards zero.
                Margin::Times(factor) if best < 0.0 => best / factor,
                Margin::Times(factor) => best * factor,
                Margin::Plus(more) => best + more,
            }
            // The best itself always stays, whatever the margin.
            .max(best);
            let unknown = if costs.contains(&None) {
                set.median_cost(costs)
            } else {
                None
            };
            let unknown_stays = unknown.is_some_and(|median| median <= edge);
            let mut costs = costs.iter();
            set.retain(|_| match costs.next() {
                Some(Some(cost)) => *cost <= edge,
                _ => unknown_stays,
            });
        })
    }

    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        self.cost.cost(cx, upstream).ok().flatten().map(f64::from)
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Later, Reason::NoUpstream)
    }

    fn reads(&self) -> Reads {
        self.cost.reads()
    }
}
