//! How costly would it be to send the request there?

use std::fmt;
use std::sync::Arc;

use super::candidates::CandidateSet;
use super::context::{PickCx, Reads};
use super::filter::FilterError;
use crate::upstream::UpstreamIndex;

/// How costly it would be to send this request there. Lower is better.
///
/// An unknown cost (`None`) counts as the median of the known ones, so that who says nothing gets about its fair share:
/// unknown is neither idle nor full. NaN never wins against a number.
pub trait Cost: fmt::Debug + Send + Sync + 'static {
    /// The cost, in a unit that is the same for all upstreams.
    ///
    /// # Errors
    /// When it cannot judge. A leaf then ends the walk and names itself; a filter that goes by the cost fails, and the mean
    /// of a `gate` is not below anything.
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError>;

    /// The cost of each candidate, in the order of places. There is no need to write this: it is here so that a leaf makes
    /// one dynamic call for all candidates.
    ///
    /// # Errors
    /// The first that [`cost`](Self::cost) gives.
    fn costs(
        &self,
        cx: &PickCx<'_>,
        set: &CandidateSet<'_>,
        into: &mut Vec<Option<f32>>,
    ) -> Result<(), FilterError> {
        for upstream in set.iter() {
            into.push(self.cost(cx, upstream)?);
        }
        Ok(())
    }

    /// Whether all costs of a word of places can be had at once, by [`costs_of_word`](Self::costs_of_word). That is for the costs that
    /// are here: those of a host are asked one by one.
    #[doc(hidden)]
    fn by_words(&self) -> bool {
        false
    }

    /// The cost at each of the 64 places from 64 times `word` on, also where there is no candidate: what [`cost`](Self::cost) says, and
    /// NaN where it is not known. Who may fail is not asked so.
    #[doc(hidden)]
    fn costs_of_word(&self, cx: &PickCx<'_>, word: usize, into: &mut [f32; 64]) {
        let _one_by_one = (cx, word);
        *into = [f32::NAN; 64];
    }

    /// Which of our own counters it looks at.
    fn reads(&self) -> Reads {
        Reads::ALL
    }

    /// As a tree holds it. There is no need to write this: it is here so that what is shared already is not wrapped again.
    fn into_shared(self) -> Arc<dyn Cost>
    where
        Self: Sized,
    {
        Arc::new(self)
    }
}

/// Orders costs as whole numbers: NaN is worse than any number, and zero is zero whatever its sign.
pub(crate) fn order(cost: f32) -> i32 {
    if cost.is_nan() {
        return i32::MAX;
    }
    let bits = (cost + 0.0).to_bits().cast_signed();
    // Of negative numbers, a larger magnitude is less: turn all bits but the sign.
    if bits < 0 { bits ^ i32::MAX } else { bits }
}

/// A cost made of a closure. See [`cost_fn`].
pub struct CostFn<F> {
    name: &'static str,
    cost: F,
}

/// Makes a cost of a closure. One that may fail is a type that implements [`Cost`].
///
/// ```
/// use paddler_core::schedule::{Node, Signals, Tree, cost_fn};
///
/// let distance = cost_fn("distance", |cx, upstream| cx.spec(upstream).labels.get("km")?.parse().ok());
/// assert!(Tree::new(Signals::Corrected, Node::least(distance)).is_ok());
/// ```
pub fn cost_fn<F>(name: &'static str, cost: F) -> CostFn<F>
where
    F: Fn(&PickCx<'_>, UpstreamIndex) -> Option<f32> + Send + Sync + 'static,
{
    CostFn { name, cost }
}

impl<F> fmt::Debug for CostFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<F> Cost for CostFn<F>
where
    F: Fn(&PickCx<'_>, UpstreamIndex) -> Option<f32> + Send + Sync + 'static,
{
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        Ok((self.cost)(cx, upstream))
    }
}

impl Cost for Arc<dyn Cost> {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        (**self).cost(cx, upstream)
    }

    fn costs(
        &self,
        cx: &PickCx<'_>,
        set: &CandidateSet<'_>,
        into: &mut Vec<Option<f32>>,
    ) -> Result<(), FilterError> {
        (**self).costs(cx, set, into)
    }

    fn by_words(&self) -> bool {
        (**self).by_words()
    }

    fn costs_of_word(&self, cx: &PickCx<'_>, word: usize, into: &mut [f32; 64]) {
        (**self).costs_of_word(cx, word, into);
    }

    fn reads(&self) -> Reads {
        (**self).reads()
    }

    fn into_shared(self) -> Arc<dyn Cost> {
        self
    }
}
