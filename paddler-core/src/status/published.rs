//! Where is the state in force?

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
#[cfg(feature = "proxy")]
use std::sync::OnceLock;

use arc_swap::{ArcSwap, Guard};

use super::Snapshot;

/// The snapshot in force: one writer replaces it, any number of readers load it, nobody waits.
#[derive(Clone)]
pub struct Published(Arc<Shared>);

struct Shared {
    in_force: ArcSwap<Snapshot>,
    /// What the router that routes by it is called among routers.
    #[cfg(feature = "proxy")]
    router: OnceLock<Arc<str>>,
}

impl Published {
    pub(crate) fn new(first: Snapshot) -> Self {
        Self(Arc::new(Shared {
            in_force: ArcSwap::from_pointee(first),
            #[cfg(feature = "proxy")]
            router: OnceLock::new(),
        }))
    }

    /// The snapshot as it is now. Hold it for a pick, not across an `await`.
    pub fn load(&self) -> impl Deref<Target = Arc<Snapshot>> + use<> {
        let guard: Guard<Arc<Snapshot>> = self.0.in_force.load();
        guard
    }

    /// The snapshot as it is now, to be kept for as long as one likes.
    pub fn load_full(&self) -> Arc<Snapshot> {
        self.0.in_force.load_full()
    }

    pub(crate) fn store(&self, next: Arc<Snapshot>) {
        self.0.in_force.store(next);
    }

    /// What the router that routes by it is called among routers, once there is one.
    #[cfg(feature = "proxy")]
    pub(crate) fn router(&self) -> Option<&Arc<str>> {
        self.0.router.get()
    }

    /// The same; if nobody has named it yet, like this.
    #[cfg(feature = "proxy")]
    pub(crate) fn named(&self, name: impl FnOnce() -> Arc<str>) -> Arc<str> {
        self.0.router.get_or_init(name).clone()
    }
}

impl fmt::Debug for Published {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Published")
            .field(&self.0.in_force.load().generation())
            .finish()
    }
}
