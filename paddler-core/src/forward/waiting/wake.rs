//! How does whoever gives a place back know that somebody waits for one?

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};

use tokio::sync::Notify;

/// Wakes the one who hands out.
///
/// Who is about to wait says so, and then looks for a place; who gives one back does so, and then looks whether anybody
/// waits. The fences between see to it that at least one of the two sees the other.
#[derive(Debug, Default)]
pub(super) struct Wake {
    /// Who waits, and who is about to.
    pub(super) standing: AtomicUsize,
    pub(super) notify: Notify,
}

impl Wake {
    pub(super) fn stand(&self, many: usize) {
        self.standing.store(many, Relaxed);
        fence(SeqCst);
    }

    pub(super) fn freed(&self) {
        fence(SeqCst);
        if self.standing.load(Relaxed) > 0 {
            self.notify.notify_one();
        }
    }
}
