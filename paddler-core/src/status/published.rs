//! Where is the state in force?

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};

use super::Snapshot;

/// The snapshot in force: one writer replaces it, any number of readers load it, nobody waits.
#[derive(Clone)]
pub struct Published(Arc<ArcSwap<Snapshot>>);

impl Published {
    pub(crate) fn new(first: Snapshot) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(first)))
    }

    /// The snapshot as it is now. Hold it for a pick, not across an `await`.
    pub fn load(&self) -> impl Deref<Target = Arc<Snapshot>> + use<> {
        let guard: Guard<Arc<Snapshot>> = self.0.load();
        guard
    }

    /// The snapshot as it is now, to be kept for as long as one likes.
    pub fn load_full(&self) -> Arc<Snapshot> {
        self.0.load_full()
    }

    pub(crate) fn store(&self, next: Arc<Snapshot>) {
        self.0.store(next);
    }
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Published")
            .field(&self.0.load().generation())
            .finish()
    }
}
