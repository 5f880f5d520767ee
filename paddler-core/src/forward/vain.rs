//! Which wake-ups of a connection are known to be in vain?
//!
//! hyper's server of HTTP/1.1 hands over a request's body piece by piece, and is woken whenever one is taken, to read the next:
//! also for the last one, when it has let go of the body. The connection would then be polled down to the engine's for nothing, and
//! the runtime would wake another of its threads for that. So a connection is given a waker that can be held back, by who
//! takes a piece, on his thread and while he takes it, and is let go again unless he sees that it was the last.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

thread_local! {
    static HELD: Cell<Held> = const { Cell::new(Held::Nothing) };
}

/// What is held back on this thread.
#[derive(Default)]
enum Held {
    /// Whoever is woken is woken at once.
    #[default]
    Nothing,
    /// The next one is.
    Next,
    /// He is.
    This(Arc<Patient>),
}

/// A connection's waker, which can be held back.
struct Patient(Waker);

impl Wake for Patient {
    fn wake(self: Arc<Self>) {
        if let Some(now) = hold_back(self) {
            now.0.wake_by_ref();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.clone().wake();
    }
}

/// Holds a waker back, if it is to be. Else it is to wake now.
fn hold_back(waker: Arc<Patient>) -> Option<Arc<Patient>> {
    let mut waker = Some(waker);
    let held = HELD.try_with(|held| match (held.take(), waker.take()) {
        (Held::Next, Some(waker)) => {
            held.set(Held::This(waker));
            None
        }
        (other, waker) => {
            held.set(other);
            waker
        }
    });
    // A thread that ends holds nothing back.
    held.unwrap_or(waker)
}

/// While this lives, the first of those who are woken by this thread is held back, if it can be.
#[must_use]
pub(super) struct HoldingBack {
    /// It was not held back before.
    first: bool,
}

impl HoldingBack {
    pub(super) fn begin() -> Self {
        let begin = |held: &Cell<Held>| match held.take() {
            Held::Nothing => {
                held.set(Held::Next);
                true
            }
            other => {
                held.set(other);
                false
            }
        };
        Self {
            first: HELD.try_with(begin).unwrap_or_default(),
        }
    }

    /// Who was held back would be woken in vain.
    pub(super) fn in_vain(self) {
        self.end();
    }

    /// Nobody is held back any more. Gives who was.
    fn end(&self) -> Option<Arc<Patient>> {
        let held = self.first.then(|| HELD.try_with(Cell::take).unwrap_or_default());
        match held {
            Some(Held::This(waker)) => Some(waker),
            _ => None,
        }
    }
}

impl Drop for HoldingBack {
    fn drop(&mut self) {
        if let Some(waker) = self.end() {
            waker.0.wake_by_ref();
        }
    }
}

/// What `connection` comes to, polled by a waker that can be held back.
pub(super) async fn patiently<T>(mut connection: Pin<&mut impl Future<Output = T>>) -> T {
    let mut wakers = None::<(Waker, Waker)>;
    poll_fn(|cx| {
        let (_, ours) = match &mut wakers {
            Some(known) if known.0.will_wake(cx.waker()) => known,
            other => {
                let task = cx.waker().clone();
                other.insert((task.clone(), Arc::new(Patient(task)).into()))
            }
        };
        connection.as_mut().poll(&mut Context::from_waker(ours))
    })
    .await
}

#[cfg(test)]
mod tests;
