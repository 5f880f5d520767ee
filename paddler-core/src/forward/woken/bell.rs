//! How is it known whether somebody was woken since he was last asked?
//!
//! By a flag, which is raised before the task is woken and taken down before he is asked. `tests/wake_model` tries every
//! interleaving of the two.

use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::upstream::sync::Mutex;
use crate::upstream::sync::atomic::{AtomicBool, Ordering};

/// Polls what is pending only when it was woken.
#[derive(Debug)]
pub(crate) struct Woken {
    pub(super) bell: Arc<Bell>,
    waker: Waker,
    /// Whom the bell wakes.
    task: Option<Waker>,
    /// The next poll asks in any case: the last one was ready, and may be so again, or somebody wants it asked.
    ask_anyway: bool,
}

#[derive(Debug, Default)]
pub(super) struct Bell {
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
    pub(crate) fn new() -> Self {
        let bell = Arc::new(Bell::default());
        Self {
            waker: bell.clone().into(),
            bell,
            task: None,
            ask_anyway: false,
        }
    }

    /// Polls by this, unless that was pending before and nobody was woken since. What it waits for has to be the same each
    /// time.
    pub(crate) fn poll<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let known = self.task.as_ref().is_some_and(|task| task.will_wake(cx.waker()));
        if !known {
            self.wakes(cx.waker());
        } else if !self.ask_anyway && !self.bell.rung.load(Ordering::Acquire) {
            return Poll::Pending;
        }
        // Before it is asked: what happens meanwhile is not to be forgotten. A swap, not a store: a store could take effect after the
        // one that rings meanwhile, and after what is asked was read, so that both are lost.
        self.bell.rung.swap(false, Ordering::AcqRel);
        let result = poll(&mut Context::from_waker(&self.waker));
        self.ask_anyway = result.is_ready();
        result
    }

    /// The next poll asks, whoever was woken.
    pub(crate) fn ask_again(&mut self) {
        self.ask_anyway = true;
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
