//! Who tells which upstreams exist and how they are?

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use async_trait::async_trait;
use tokio::sync::watch;

use super::StatusEvent;
use crate::upstream::{UpstreamId, UpstreamSpec};

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

    /// In a word, who it is: for logs, and for whoever asks who tells of an upstream. Provided: "source".
    fn name(&self) -> &'static str {
        "source"
    }
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

/// Upstreams as a list that is replaced as a whole: a config that is read again, a file, what a directory of services says.
///
/// Who is new joins, who has another spec changes, who is gone leaves, and of all others nothing is said, so they keep
/// what is known of them. To leave is to drain: nobody is sent there any more, and what is open there goes on. Who comes
/// back is still drained if the operator has drained him, and at the same URL is not well for having been away.
///
/// ```
/// use paddler_core::status::{MemberList, StatusEvent, StatusSource};
/// use paddler_core::upstream::{UpstreamId, UpstreamSpec};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let spec = |id: &str| UpstreamSpec::new(id, format!("http://{id}:8080"));
/// let (members, mut list) = MemberList::new([spec("a")?, spec("b")?]);
/// for _ in 0..2 {
///     assert!(matches!(list.next().await, Some(StatusEvent::Upsert(_))));
/// }
/// members.set([spec("b")?, spec("c")?]);
/// assert!(matches!(list.next().await, Some(StatusEvent::Upsert(new)) if new.id.as_str() == "c"));
/// assert!(matches!(list.next().await, Some(StatusEvent::Remove(gone)) if gone.as_str() == "a"));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MemberList {
    name: &'static str,
    wanted: watch::Receiver<Vec<UpstreamSpec>>,
    told: Told,
}

/// What was told of a list, and what is still to be told.
#[derive(Debug, Default)]
pub(super) struct Told {
    specs: HashMap<UpstreamId, UpstreamSpec>,
    events: VecDeque<StatusEvent>,
}

/// Replaces the list of a [`MemberList`] or of a [`DnsList`](super::DnsList). Dropped, the last list stays.
#[derive(Debug)]
pub struct Members(watch::Sender<Vec<UpstreamSpec>>);

impl MemberList {
    /// These, and what replaces them.
    pub fn new(upstreams: impl IntoIterator<Item = UpstreamSpec>) -> (Members, Self) {
        let (members, mut wanted) = Members::new(upstreams);
        wanted.mark_changed();
        let list = Self {
            name: "list",
            wanted,
            told: Told::default(),
        };
        (members, list)
    }

    /// Under this name: see [`StatusSource::name`].
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

impl Told {
    /// What is to be told next.
    pub(super) fn next(&mut self) -> Option<StatusEvent> {
        self.events.pop_front()
    }

    /// Puts a list in the place of the one that was told. Who is new comes first, so that there is never nobody between two
    /// lists.
    pub(super) fn replace(&mut self, wanted: &[UpstreamSpec]) {
        let mut listed = HashSet::new();
        // Of two with one id the later one counts, and the other is told to nobody.
        let mut last: Vec<_> = wanted
            .iter()
            .rev()
            .filter(|spec| listed.insert(&spec.id))
            .collect();
        last.reverse();
        for spec in last {
            if !self.specs.get(&spec.id).is_some_and(|told| told.same_as(spec)) {
                self.specs.insert(spec.id.clone(), spec.clone());
                self.events.push_back(StatusEvent::Upsert(spec.clone()));
            }
        }
        let gone = |id: &UpstreamId| !listed.contains(id);
        let gone: Vec<_> = self.specs.keys().filter(|id| gone(id)).cloned().collect();
        for id in gone {
            self.specs.remove(&id);
            self.events.push_back(StatusEvent::Remove(id));
        }
    }
}

impl Members {
    pub(super) fn new(
        upstreams: impl IntoIterator<Item = UpstreamSpec>,
    ) -> (Self, watch::Receiver<Vec<UpstreamSpec>>) {
        let (set, wanted) = watch::channel(upstreams.into_iter().collect());
        (Self(set), wanted)
    }

    /// Changes the list in place.
    pub fn edit(&self, change: impl FnOnce(&mut Vec<UpstreamSpec>)) {
        self.0.send_modify(change);
    }

    /// Puts this list in the place of the one before. Of two with one id the later one counts.
    pub fn set(&self, upstreams: impl IntoIterator<Item = UpstreamSpec>) {
        self.0.send_replace(upstreams.into_iter().collect());
    }
}

#[async_trait]
impl StatusSource for MemberList {
    async fn next(&mut self) -> Option<StatusEvent> {
        loop {
            if let Some(event) = self.told.next() {
                return Some(event);
            }
            self.wanted.changed().await.ok()?;
            self.told.replace(&self.wanted.borrow_and_update());
        }
    }

    fn name(&self) -> &'static str {
        self.name
    }
}
