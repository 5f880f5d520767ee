//! How does who is seldom heard of wait beside who is heard of all the time?
//!
//! A task that waits for several is woken by one of them, and does not know by which: it would ask all. Whoever is asked here has
//! a waker of his own, and is asked again only once he has used it. An event of a stream then costs nothing of what waits beside
//! it: for the client to hang up, for the server to stop, for a time limit.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Polls what is pending only when it was woken.
#[derive(Debug)]
pub(super) struct Woken {
    bell: Arc<Bell>,
    waker: Waker,
    /// Whom the bell wakes.
    task: Option<Waker>,
}

#[derive(Debug, Default)]
struct Bell {
    rung: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A swap, as below: of two who wake, neither's news is to be hidden by the other's.
        self.rung.swap(true, Ordering::AcqRel);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = &*task {
            task.wake_by_ref();
        }
    }
}

impl Woken {
    pub(super) fn new() -> Self {
        let bell = Arc::new(Bell::default());
        Self {
            waker: bell.clone().into(),
            bell,
            task: None,
        }
    }

    /// Polls by this, unless that was pending before and nobody was woken since. What it waits for has to be the same each
    /// time.
    pub(super) fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let known = self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
        if !known {
            self.wakes(cx.waker());
        } else if !self.bell.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Before it is asked: what happens meanwhile is not to be forgotten. A swap, not a store: a store could take effect after the
        // one that rings meanwhile, and after what is asked was read, so that both are lost.
        self.bell.rung.swap(false, Ordering::AcqRel);
        let result = poll(&mut Context::from_waker(&self.waker));
        if result.is_ready() {
            self.bell.rung.store(true, Ordering::Relaxed);
        }
        result
    }

    /// From now on the bell wakes this task.
    fn wakes(&mut self, task: &Waker) {
        self.task = Some(task.clone());
        let before = self
            .bell
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .replace(task.clone());
        drop(before);
    }
}

/// What `often` comes to, or `None` if `seldom` is done before.
pub(super) async fn before<T>(
    mut often: Pin<&mut impl Future<Output = T>>,
    mut seldom: Pin<&mut impl Future<Output = ()>>,
) -> Option<T> {
    let mut woken = Woken::new();
    poll_fn(|cx| {
        if let Poll::Ready(done) = often.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        woken.poll(cx, |cx| seldom.as_mut().poll(cx)).map(|()| None)
    })
    .await
}

#[cfg(test)]
mod tests;
