//! Which wake-ups of a connection are spurious?
//!
//! hyper's server of HTTP/1.1 hands over a request's body piece by piece, and is woken whenever one is taken, to read the next:
//! also for the last one, when it has let go of the body. The connection would then be polled down to the engine's for nothing, and
//! the runtime would wake another of its threads for that. So a connection is given a waker that can be deferred, by who takes a
//! piece, on his thread and while he takes it: it wakes after that, unless he sees that it was the last.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

thread_local! {
    static DEFERRED: Cell<Deferred> = const { Cell::new(Deferred::Nobody) };
}

/// Who is deferred on this thread.
#[derive(Default)]
enum Deferred {
    /// Whoever is woken is woken at once.
    #[default]
    Nobody,
    /// The next one is.
    Next,
    /// He is.
    This(Arc<Deferrable>),
}

/// A connection's waker, which can be deferred.
struct Deferrable(Waker);

impl Wake for Deferrable {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let defer = |deferred: &Cell<Deferred>| {
            let (is_next, then) = match deferred.take() {
                Deferred::Next => (true, Deferred::This(self.clone())),
                other => (false, other),
            };
            deferred.set(then);
            is_next
        };
        // A thread that ends defers nobody.
        if !DEFERRED.try_with(defer).unwrap_or_default() {
            self.0.wake_by_ref();
        }
    }
}

/// While this lives, the first of those who are woken by this thread is deferred, if it can be.
#[must_use]
pub(super) struct DeferWake {
    /// Nobody else defers on this thread, further out.
    outermost: bool,
}

impl DeferWake {
    pub(super) fn begin() -> Self {
        let begin = |deferred: &Cell<Deferred>| {
            let (outermost, then) = match deferred.take() {
                Deferred::Nobody => (true, Deferred::Next),
                other => (false, other),
            };
            deferred.set(then);
            outermost
        };
        Self {
            outermost: DEFERRED.try_with(begin).unwrap_or_default(),
        }
    }

    /// Who was deferred is not woken: it would be for nothing.
    pub(super) fn discard(self) {
        self.end();
    }

    /// Nobody is deferred any more. Gives who was.
    fn end(&self) -> Option<Arc<Deferrable>> {
        let deferred = self
            .outermost
            .then(|| DEFERRED.try_with(Cell::take).unwrap_or_default());
        match deferred {
            Some(Deferred::This(waker)) => Some(waker),
            _ => None,
        }
    }
}

impl Drop for DeferWake {
    fn drop(&mut self) {
        if let Some(waker) = self.end() {
            waker.0.wake_by_ref();
        }
    }
}

/// What `connection` comes to, polled by a waker that can be deferred.
pub(super) async fn deferrable<T>(mut connection: Pin<&mut impl Future<Output = T>>) -> T {
    let mut wakers = None::<(Waker, Waker)>;
    poll_fn(|cx| {
        let (_, ours) = match &mut wakers {
            Some(known) if known.0.will_wake(cx.waker()) => known,
            other => {
                let task = cx.waker().clone();
                other.insert((task.clone(), Arc::new(Deferrable(task)).into()))
            }
        };
        connection.as_mut().poll(&mut Context::from_waker(ours))
    })
    .await
}

#[cfg(test)]
mod tests;
