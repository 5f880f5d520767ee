//! How does one connection stand, and how will it end?
//!
//! A [`Line`] is what the parts that serve one connection know together: how many requests it has carried,
//! since when it is idle, whether it must close.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::rewrite::{Rewrite, Rewriting};

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Line {
    state: Mutex<LineState>,
    changed: Notify,
}

#[derive(Debug)]
struct LineState {
    requests: u32,
    open_turns: u32,
    idle_since: Instant,
    close: bool,
    reset: bool,
    surplus: Bytes,
    rewrite: Rewrite,
}

impl Line {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(LineState {
                requests: 0,
                open_turns: 0,
                idle_since: Instant::now(),
                close: false,
                reset: false,
                surplus: Bytes::new(),
                rewrite: Rewrite::default(),
            }),
            changed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a request; the connection is not idle while the turn lives.
    pub(crate) fn begin(self: &Arc<Self>) -> Turn {
        let mut state = self.state();
        state.requests = state.requests.saturating_add(1);
        state.open_turns += 1;
        state.rewrite = Rewrite::default();
        let number = state.requests;
        drop(state);
        self.changed.notify_one();
        Turn {
            line: self.clone(),
            number,
            close_after: false,
        }
    }

    /// Makes the connection end with a reset instead of a clean close.
    pub(crate) fn reset_at_end(&self) {
        self.state().reset = true;
    }

    /// Sends these bytes behind the answer that is being written.
    pub(crate) fn send_surplus(&self, bytes: Bytes) {
        self.state().surplus = bytes;
    }

    /// Changes the answer that is about to be written.
    pub(crate) fn rewrite(&self, rewrite: Rewrite) {
        self.state().rewrite = rewrite;
    }

    /// What is to go out behind the answer.
    pub(super) fn surplus(&self) -> Bytes {
        self.state().surplus.clone()
    }

    /// So much of it has gone out.
    pub(super) fn surplus_written(&self, length: usize) {
        let mut state = self.state();
        let length = length.min(state.surplus.len());
        state.surplus.advance(length);
    }

    /// How the answer that begins now is changed, if it is; told once.
    pub(super) fn begin_rewriting(&self) -> Option<Rewriting> {
        let rewrite = std::mem::take(&mut self.state().rewrite);
        rewrite.is_some().then(|| Rewriting::new(rewrite))
    }

    /// Whether the connection is to end with a reset.
    pub(super) fn ends_with_reset(&self) -> bool {
        self.state().reset
    }

    /// Whether the connection must close once its answer is out.
    pub(crate) fn must_close(&self) -> bool {
        self.state().close
    }

    /// When an idle connection is to be closed; `None` while a request is open.
    pub(crate) fn idle_deadline(&self, keep_alive: Duration) -> Option<Instant> {
        let state = self.state();
        (state.open_turns == 0)
            .then(|| state.idle_since.checked_add(keep_alive))
            .flatten()
    }

    /// Waits until something about the connection has changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

/// One request and its answer on a connection; dropped when the answer is over.
#[derive(Debug)]
pub(crate) struct Turn {
    line: Arc<Line>,
    /// The how manyth request of its connection this is, from 1.
    pub(crate) number: u32,
    close_after: bool,
}

impl Turn {
    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Closes the connection after this answer, whatever its headers say.
    pub(crate) fn close_after(&mut self) {
        self.close_after = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.line.state();
        state.open_turns = state.open_turns.saturating_sub(1);
        state.idle_since = Instant::now();
        state.close |= self.close_after;
        drop(state);
        self.line.changed.notify_one();
    }
}
