//! What does an embedder know of an upstream that we have no name for?

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

/// Typed values that ride along on a spec or a report, at most one of each type.
///
/// A custom filter reads its own data back with [`get`](Extensions::get). Values are shared, not copied, when a spec or
/// report is cloned, and they are not serialised.
///
/// ```
/// use paddler_core::upstream::Extensions;
///
/// #[derive(Debug, PartialEq)]
/// struct PricePerToken(f64);
///
/// let mut extensions = Extensions::default();
/// extensions.insert(PricePerToken(0.25));
/// assert_eq!(extensions.get::<PricePerToken>(), Some(&PricePerToken(0.25)));
/// assert_eq!(extensions.get::<u8>(), None);
/// ```
#[derive(Clone, Default)]
pub struct Extensions {
    // A handful at most, so a list beats a map.
    values: Vec<(TypeId, Arc<dyn Any + Send + Sync>)>,
}

impl Extensions {
    /// Puts in a value; one of the same type that was there before is replaced.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        let key = TypeId::of::<T>();
        self.values.retain(|(other, _)| *other != key);
        self.values.push((key, Arc::new(value)));
    }

    /// The value of this type, if one was put in.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        let key = TypeId::of::<T>();
        let (_, value) = self.values.iter().find(|(other, _)| *other == key)?;
        value.downcast_ref()
    }

    /// Takes out the value of this type, if there is one.
    pub fn remove<T: 'static>(&mut self) {
        let key = TypeId::of::<T>();
        self.values.retain(|(other, _)| *other != key);
    }

    /// Takes over from `before` the value of this type, if it is equal: then it is the very same one, and
    /// [`same_as`](Self::same_as) sees no change in what was only read again.
    ///
    /// ```
    /// use paddler_core::upstream::Extensions;
    ///
    /// let (mut before, mut again) = (Extensions::default(), Extensions::default());
    /// before.insert("a key".to_owned());
    /// again.insert("a key".to_owned());
    /// assert!(!again.same_as(&before));
    /// again.keep::<String>(&before);
    /// assert!(again.same_as(&before));
    /// ```
    pub fn keep<T: PartialEq + Send + Sync + 'static>(&mut self, before: &Self) {
        let key = TypeId::of::<T>();
        if self.get::<T>().is_some() && self.get::<T>() == before.get::<T>() {
            self.values.retain(|(other, _)| *other != key);
            let kept = before.values.iter().find(|(other, _)| *other == key);
            self.values.extend(kept.cloned());
        }
    }

    /// Whether both hold the very same values: one that was made anew is another one.
    pub fn same_as(&self, other: &Self) -> bool {
        let has = |key: &TypeId, value: &Arc<dyn Any + Send + Sync>| {
            let same = |(k, v): &(TypeId, Arc<dyn Any + Send + Sync>)| k == key && Arc::ptr_eq(v, value);
            other.values.iter().any(same)
        };
        self.values.len() == other.values.len() && self.values.iter().all(|(key, value)| has(key, value))
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extensions({})", self.values.len())
    }
}
