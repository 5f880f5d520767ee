//! Who tells which upstreams exist and how they are?

use std::fmt;

use async_trait::async_trait;

use super::StatusEvent;
use crate::upstream::UpstreamSpec;

/// Tells which upstreams exist and how they are: a list, a watched file, a resolver, an agent's stream, a poll.
///
/// Membership and status are one sequence of events, so there is one writer. Sources never touch a snapshot. A failed
/// poll is an event, so it is counted and cannot be lost.
///
/// ```
/// use paddler_core::status::{StatusEvent, StatusSource};
///
/// #[derive(Debug)]
/// struct FromChannel(tokio::sync::mpsc::Receiver<StatusEvent>);
///
/// #[async_trait::async_trait]
/// impl StatusSource for FromChannel {
///     async fn next(&mut self) -> Option<StatusEvent> {
///         self.0.recv().await
///     }
/// }
/// ```
#[async_trait]
pub trait StatusSource: fmt::Debug + Send + 'static {
    /// The next event; `None` when there will be no more. What it said stays in force then, and also when it panics:
    /// that is logged, and ends nothing else. The future is dropped only when the loop ends.
    async fn next(&mut self) -> Option<StatusEvent>;
}

/// Upstreams that are known from the start and do not change.
#[derive(Debug)]
pub struct FixedList(std::vec::IntoIter<UpstreamSpec>);

impl FixedList {
    /// These.
    pub fn new(upstreams: impl IntoIterator<Item = UpstreamSpec>) -> Self {
        Self(upstreams.into_iter().collect::<Vec<_>>().into_iter())
    }
}

#[async_trait]
impl StatusSource for FixedList {
    async fn next(&mut self) -> Option<StatusEvent> {
        self.0.next().map(StatusEvent::Upsert)
    }
}
