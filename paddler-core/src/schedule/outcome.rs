//! How can a walk end?

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::filter::FilterError;
use super::node::NodeId;
use super::tree::Tree;
use crate::Moment;
use crate::upstream::UpstreamIndex;

/// What an alternative that finds nobody means for the request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Nobody can serve this: refuse now.
    Never,
    /// Somebody may, later: wait.
    Later,
    /// Somebody could, and this request is not worth it now: refuse now.
    Shed,
}

impl Class {
    /// The word that a config file has for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Later => "later",
            Self::Shed => "shed",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why nobody was left. A stable word for answers, records and metrics.
#[derive(Clone, PartialEq, Eq, Debug, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// There is no upstream at all.
    NoUpstream,
    /// Each upstream that could serve is excluded by the one who asks: it was tried already.
    Excluded,
    /// None of the upstreams that the one who asks allows is here.
    NotInSubset,
    /// No upstream has such a model.
    ModelNotFound,
    /// No upstream is known to have it, and some have not told yet.
    ModelsUnknown,
    /// The prompt is longer than the context of each one that could serve.
    ContextLengthExceeded,
    /// None that has the model can do such work.
    NotCapable,
    /// None is able to serve.
    Unhealthy,
    /// The operator has taken out each one that could serve.
    Draining,
    /// None has ever said how it is.
    NeverHeard,
    /// What is known is too old.
    Stale,
    /// Each slot is taken.
    SlotsBusy,
    /// Each queue is too long.
    QueueDeep,
    /// Each KV cache is too full.
    KvCacheFull,
    /// None has the adapter active or room for it.
    NoAdapterRoom,
    /// None has the label.
    NotLabelled,
    /// A race for the last place was lost as often as was tried.
    Contended,
    /// A filter or cost of the host's went wrong.
    FilterFailed,
    /// A filter of the host's left nobody.
    Filtered,
    /// What the tree says at its `reject`.
    Rejected(Arc<str>),
}

impl Reason {
    /// The word.
    pub fn as_str(&self) -> &str {
        match self {
            Self::NoUpstream => "no_upstream",
            Self::Excluded => "excluded",
            Self::NotInSubset => "not_in_subset",
            Self::ModelNotFound => "model_not_found",
            Self::ModelsUnknown => "models_unknown",
            Self::ContextLengthExceeded => "context_length_exceeded",
            Self::NotCapable => "not_capable",
            Self::Unhealthy => "unhealthy",
            Self::Draining => "draining",
            Self::NeverHeard => "never_heard",
            Self::Stale => "stale",
            Self::SlotsBusy => "slots_busy",
            Self::QueueDeep => "queue_deep",
            Self::KvCacheFull => "kv_cache_full",
            Self::NoAdapterRoom => "no_adapter_room",
            Self::NotLabelled => "not_labelled",
            Self::Contended => "contended",
            Self::FilterFailed => "filter_failed",
            Self::Filtered => "filtered",
            Self::Rejected(reason) => reason,
        }
    }

    /// Whether capacity exists and is taken, rather than nobody being able to serve.
    pub fn is_contention(&self) -> bool {
        matches!(
            self,
            Self::SlotsBusy
                | Self::QueueDeep
                | Self::KvCacheFull
                | Self::NoAdapterRoom
                | Self::Contended
                | Self::Filtered
                | Self::Rejected(_)
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An end without a pick.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ending {
    /// What it means for the request.
    pub class: Class,
    /// Why.
    pub reason: Reason,
    /// The node that found nobody.
    pub node: NodeId,
    /// When asking again can give another answer though nothing has changed: a fallback's patience ends then.
    pub until: Option<Moment>,
    /// What the host's filter or cost said, where it was one that failed.
    #[serde(skip)]
    pub error: Option<FilterError>,
    /// What that node does, in a line, where it is the host's own that failed or left nobody.
    #[serde(skip)]
    pub title: Option<Arc<str>>,
}

/// The title says no more than the node, and a record has none.
impl PartialEq for Ending {
    fn eq(&self, other: &Self) -> bool {
        let all = |ending: &Self| (ending.class, ending.node, ending.until);
        all(self) == all(other) && self.reason == other.reason && self.error == other.error
    }
}

impl Ending {
    /// There is room, and it is for somebody else.
    #[cfg(feature = "proxy")]
    pub(crate) fn contended() -> Self {
        Self::new(Class::Later, Reason::Contended, NodeId::default())
    }

    pub(crate) fn new(class: Class, reason: Reason, node: NodeId) -> Self {
        Self {
            class,
            reason,
            node,
            until: None,
            error: None,
            title: None,
        }
    }

    /// The same, with the title of its node where nothing else says what of the host's it was.
    pub(crate) fn titled(mut self, tree: &Tree) -> Self {
        if matches!(self.reason, Reason::Filtered | Reason::FilterFailed) {
            self.title = tree.shared_title(self.node);
        }
        self
    }
}

/// Up to four upstreams, the best first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Picks {
    picks: [Option<UpstreamIndex>; Picks::MOST],
}

impl Picks {
    /// The most upstreams that one pick ranks.
    pub const MOST: usize = 4;

    pub(crate) fn push(&mut self, upstream: UpstreamIndex) {
        if let Some(free) = self.picks.iter_mut().find(|pick| pick.is_none()) {
            *free = Some(upstream);
        }
    }

    /// The best one.
    pub fn first(&self) -> Option<UpstreamIndex> {
        self.picks[0]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.picks[0].is_none()
    }

    /// All of them, the best first.
    pub fn iter(&self) -> impl Iterator<Item = UpstreamIndex> + '_ {
        self.picks.iter().filter_map(|pick| *pick)
    }
}

/// What a walk comes to.
#[derive(Clone, PartialEq, Debug)]
#[must_use]
pub enum Outcome {
    /// These, the best first. At least one.
    Picked(Picks),
    /// Nobody now; asking again later can help.
    Wait(Ending),
    /// Nobody, and waiting will not help.
    Refuse(Ending),
}

impl Outcome {
    /// The best upstream, if there is one.
    pub fn picked(&self) -> Option<UpstreamIndex> {
        match self {
            Self::Picked(picks) => picks.first(),
            Self::Wait(_) | Self::Refuse(_) => None,
        }
    }

    /// How it ended, if nobody was picked.
    pub fn ending(&self) -> Option<&Ending> {
        match self {
            Self::Picked(_) => None,
            Self::Wait(ending) | Self::Refuse(ending) => Some(ending),
        }
    }
}

impl From<Ending> for Outcome {
    fn from(ending: Ending) -> Self {
        match ending.class {
            Class::Later => Self::Wait(ending),
            Class::Never | Class::Shed => Self::Refuse(ending),
        }
    }
}
