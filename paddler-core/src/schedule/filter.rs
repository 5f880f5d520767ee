//! How is the set of candidates narrowed?

use std::fmt;
use std::sync::Arc;

use super::candidates::CandidateSet;
use super::context::{PickCx, Reads};
use super::outcome::{Class, Reason};
use crate::upstream::UpstreamIndex;

/// Why a filter or a cost could not judge. Cheap to make and to clone. Two are equal that say the same.
#[derive(Clone, Debug)]
pub struct FilterError {
    message: Arc<str>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl FilterError {
    /// An error with this text.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            message: message.into(),
            source: None,
        }
    }

    /// The same, with the host's own error that it comes from: who is refused for it finds it as its
    /// [`source`](std::error::Error::source).
    ///
    /// ```
    /// use std::error::Error as _;
    /// use paddler_core::schedule::FilterError;
    ///
    /// let error = FilterError::with_source("no price list", std::io::Error::other("it is gone"));
    /// assert_eq!(error.to_string(), "no price list");
    /// assert!(error.source().unwrap().is::<std::io::Error>());
    /// ```
    pub fn with_source(
        message: impl Into<Arc<str>>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self {
            source: Some(Arc::new(source)),
            ..Self::new(message)
        }
    }
}

impl PartialEq for FilterError {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

impl Eq for FilterError {}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for FilterError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source = self.source.as_deref()?;
        Some(source)
    }
}

/// What it means when a filter that is required leaves nobody.
#[derive(Clone, PartialEq, Debug)]
pub struct Lack {
    /// What becomes of the request, unless the tree says otherwise.
    pub class: Class,
    /// Why.
    pub reason: Reason,
}

impl Lack {
    /// A lack of this class for this reason.
    pub fn new(class: Class, reason: Reason) -> Self {
        Self { class, reason }
    }
}

/// Removes upstreams that must not, or should rather not, serve this request.
///
/// Whether it *must* is for the tree to say (`require`, `prefer`, `branch`). A filter looks at the whole set, because
/// useful ones are relative ("close to the best"); [`filter_fn`] makes one of a closure that looks at one upstream. It
/// must not block: what is slow belongs into a status source.
///
/// A host's own word for why nobody was left is `Reason::Rejected("word".into())`.
///
/// ```
/// use paddler_core::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};
/// use paddler_core::upstream::UpstreamIndex;
///
/// struct Battery(f64);
///
/// #[derive(Debug)]
/// struct Charged { above: f64 }
///
/// impl Filter for Charged {
///     fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
///         set.retain(|upstream| self.value(cx, upstream).is_none_or(|full| full > self.above));
///         Ok(())
///     }
///     fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
///         cx.report(upstream)?.extensions.get::<Battery>().map(|battery| battery.0)
///     }
///     fn lack(&self, _: &PickCx<'_>) -> Lack {
///         Lack::new(Class::Later, Reason::Rejected("batteries_empty".into()))
///     }
///     fn reads(&self) -> Reads {
///         Reads::NONE
///     }
/// }
/// # use paddler_core::schedule::{Node, Signals, Tree};
/// # assert!(Tree::new(Signals::Corrected, Node::list([Node::require(Charged { above: 0.2 }), Node::random()])).is_ok());
/// ```
pub trait Filter: fmt::Debug + Send + Sync + 'static {
    /// Takes out of the set who does not pass.
    ///
    /// # Errors
    /// When it cannot judge. The node then counts as failed: `prefer` goes on, `branch` takes its `else`, `require` ends
    /// the walk and names the node.
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError>;

    /// The value that this upstream was judged by, for explanations. Unknown, or not one number: `None`.
    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        let _no_value = (cx, upstream);
        None
    }

    /// What it means when nobody passes.
    fn lack(&self, cx: &PickCx<'_>) -> Lack {
        let _the_same_for_all = cx;
        Lack::new(Class::Later, Reason::Filtered)
    }

    /// Which of our own counters it looks at. Those that no node of a tree looks at are not read.
    fn reads(&self) -> Reads {
        Reads::ALL
    }

    /// As a tree holds it. There is no need to write this: it is here so that what is shared already is not wrapped again.
    fn into_shared(self) -> Arc<dyn Filter>
    where
        Self: Sized,
    {
        Arc::new(self)
    }
}

/// A filter made of a closure. See [`filter_fn`].
pub struct FilterFn<F> {
    name: &'static str,
    keep: F,
}

/// Makes a filter of a closure that says of one upstream whether it passes.
///
/// ```
/// use paddler_core::schedule::{Node, Signals, Tree, filter_fn};
///
/// struct Price(f64);
/// let cheap = filter_fn("cheap", |cx, upstream| {
///     cx.spec(upstream).extensions.get::<Price>().is_some_and(|price| price.0 < 0.5)
/// });
/// let tree = Tree::new(Signals::Corrected, Node::list([Node::prefer(cheap), Node::random()]));
/// assert!(tree.is_ok());
/// ```
pub fn filter_fn<F>(name: &'static str, keep: F) -> FilterFn<F>
where
    F: Fn(&PickCx<'_>, UpstreamIndex) -> bool + Send + Sync + 'static,
{
    FilterFn { name, keep }
}

impl<F> fmt::Debug for FilterFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<F> Filter for FilterFn<F>
where
    F: Fn(&PickCx<'_>, UpstreamIndex) -> bool + Send + Sync + 'static,
{
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.retain(|upstream| (self.keep)(cx, upstream));
        Ok(())
    }
}

impl Filter for Arc<dyn Filter> {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        (**self).narrow(cx, set)
    }

    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        (**self).value(cx, upstream)
    }

    fn lack(&self, cx: &PickCx<'_>) -> Lack {
        (**self).lack(cx)
    }

    fn reads(&self) -> Reads {
        (**self).reads()
    }

    fn into_shared(self) -> Arc<dyn Filter> {
        self
    }
}
