//! Which models can be asked for, and who serves each?

use serde::Serialize;

use crate::health::HealthState;
use crate::status::Snapshot;
use crate::upstream::{Models, UpstreamId, UpstreamIndex, bit};

/// A model, or an adapter, that can be asked for.
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::manage::ModelStatus;
/// use paddler_core::schedule::trees;
/// use paddler_core::status::{StatusBoard, StatusEvent};
/// use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec};
///
/// let mut board = StatusBoard::new(trees::gateway());
/// let models = Models::Listed(vec![ModelEntry::new("llama"), ModelEntry::adapter("sql", "llama")]);
/// let spec = UpstreamSpec::new("gpu-1", "http://127.0.0.1:8080")?.models(models);
/// board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
///
/// let models = ModelStatus::all(&board.publish(Moment::ZERO));
/// assert_eq!((models[0].name.as_str(), models[0].upstreams[0].state), ("llama", "healthy"));
/// assert_eq!(models[1].parent.as_deref(), Some("llama"));
/// # Ok::<(), paddler_core::upstream::InvalidId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ModelStatus {
    /// The name that requests ask for it by.
    pub name: String,
    /// It is an adapter (LoRA) and no base model.
    pub adapter: bool,
    /// Its base model, if it is an adapter that was listed with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// What upstreams have under this name: one, unless it is an alias of several.
    pub stands_for: Vec<StandsFor>,
    /// Who lists it, in the order of their ids. Those that serve whatever is asked for come on top: see
    /// [`serving_any`](Self::serving_any).
    pub upstreams: Vec<Serving>,
}

/// A model that goes by another name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StandsFor {
    /// Its own.
    pub model: String,
    /// Its base model, if it is an adapter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

/// Somebody who serves a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Serving {
    /// Who.
    pub upstream: UpstreamId,
    /// Whether it gets work now: `healthy`, `probing`, `warming`; or why not: `unable` (by its own word, or nobody is there),
    /// `draining`, `ejected`.
    pub state: &'static str,
    /// It reports the adapter as running or waiting.
    pub active: bool,
}

impl ModelStatus {
    /// All names that can be asked for, in their order.
    pub fn all(snapshot: &Snapshot) -> Vec<Self> {
        let states: Vec<_> = states(snapshot);
        let mut all: Vec<_> = snapshot
            .models()
            .map(|(name, row)| {
                let served = states.iter().filter(|(at, ..)| bit(&row.serves, at.get()));
                Self {
                    name: name.to_owned(),
                    adapter: row.is_adapter(),
                    parent: row.parent().map(str::to_owned),
                    stands_for: row.stands_for().map(StandsFor::of).collect(),
                    upstreams: served
                        .map(|(at, id, state)| Serving {
                            upstream: (*id).clone(),
                            state,
                            active: row.is_active_on(*at),
                        })
                        .collect(),
                }
            })
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Those that serve whatever is asked of them, in the order of their ids.
    pub fn serving_any(snapshot: &Snapshot) -> Vec<Serving> {
        let any = |at: UpstreamIndex| {
            let entry = snapshot.entry(at);
            entry.is_some_and(|entry| entry.models() == Some(&Models::Any))
        };
        let states = states(snapshot).into_iter().filter(|(at, ..)| any(*at));
        states
            .map(|(_, id, state)| Serving {
                upstream: id.clone(),
                state,
                active: false,
            })
            .collect()
    }
}

impl StandsFor {
    fn of((model, base): (&str, Option<&str>)) -> Self {
        Self {
            model: model.to_owned(),
            base: base.map(str::to_owned),
        }
    }
}

/// How each upstream is, in the order of their ids.
fn states(snapshot: &Snapshot) -> Vec<(UpstreamIndex, &UpstreamId, &'static str)> {
    let state = |at| state(snapshot, at);
    let all = snapshot
        .iter()
        .map(|(at, entry)| (at, &entry.spec().id, state(at)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, id, _)| *id);
    all
}

/// Whether an upstream gets work now, in a word: [`Serving::state`].
pub(super) fn state(snapshot: &Snapshot, at: UpstreamIndex) -> &'static str {
    if snapshot.ledger().is_barred(at.0) {
        return "draining";
    }
    let health = snapshot.health(at).map(|health| health.state);
    match health {
        Some(HealthState::Ejected { .. }) => "ejected",
        _ if !snapshot.is_able(at.0) => "unable",
        Some(HealthState::Probing) => "probing",
        Some(HealthState::Warming { .. }) => "warming",
        Some(HealthState::Healthy) | None => "healthy",
    }
}
