//! What would an operator want to read in the log, and only once?

use std::collections::HashMap;

use crate::source::is_about_a_key;
use crate::status::{Applied, Degraded, Failure, Health, StatusEvent};
use crate::upstream::{Models, UpstreamId};

/// What was last said of each upstream, so that only news is said.
#[derive(Debug, Default)]
pub(super) struct Said(HashMap<UpstreamId, Last>);

#[derive(Debug, Default)]
struct Last {
    health: Option<Health>,
    silent: bool,
    /// Why it takes no key of ours.
    key: Option<String>,
}

/// What a report holds that is news beside what the board makes of it.
#[derive(Debug, Default)]
pub(super) struct News {
    ready: Option<Offer>,
    key: Option<RefusedKey>,
}

/// That polls are refused for their key.
#[derive(Debug)]
struct RefusedKey {
    why: String,
    /// What was asked.
    paths: String,
}

/// What one that has become ready has to offer, by its own word.
#[derive(Debug, Default)]
struct Offer {
    models: Option<String>,
    slots: Option<u32>,
}

impl Said {
    /// What is news about the upstream of this event: what it offers, if it says that it has become ready, and whether it takes
    /// our key.
    pub(super) fn news(&self, event: &StatusEvent) -> News {
        let StatusEvent::Report { id, report, .. } = event else {
            return News::default();
        };
        let Some(last) = self.0.get(id) else {
            return News::default();
        };
        let becomes_ready = report.health == Some(Health::Ready) && last.health != report.health;
        News {
            ready: becomes_ready.then(|| Offer {
                models: report.models.as_ref().map(names),
                slots: report.slots_total,
            }),
            key: RefusedKey::of(&report.degraded),
        }
    }

    pub(super) fn say(&mut self, applied: &Applied, news: News) {
        match applied {
            Applied::Joined(id) => {
                self.0.insert(id.clone(), Last::default());
                tracing::info!(upstream = %id, "upstream joined");
            }
            Applied::Changed(id) => tracing::info!(upstream = %id, "upstream changed"),
            Applied::Left(id) => {
                self.0.remove(id);
                tracing::info!(upstream = %id, "upstream left");
            }
            Applied::Reported { id, health, degraded } => {
                self.heard(id, *health, news.ready.unwrap_or_default());
                self.key(id, news.key);
                let others = degraded.iter().filter(|one| !is_about_a_key(&one.found));
                others.for_each(|one| missing(id, one));
            }
            Applied::Failed { id, failure, .. } => self.failed(id, failure),
            // The board has said itself that it is full.
            Applied::Unchanged(_) | Applied::Unknown(_) | Applied::Overtaken(_) | Applied::Full(_) => {}
        }
    }

    fn heard(&mut self, id: &UpstreamId, health: Option<Health>, Offer { models, slots }: Offer) {
        let Some(last) = self.0.get_mut(id) else { return };
        if std::mem::take(&mut last.silent) {
            tracing::info!(upstream = %id, "upstream says again how it is");
        }
        if std::mem::replace(&mut last.health, health) != health {
            match health {
                Some(Health::Ready) => tracing::info!(upstream = %id, models, slots, "upstream is ready"),
                Some(Health::Loading) => tracing::info!(upstream = %id, "upstream loads its model"),
                Some(Health::Failing) => tracing::warn!(upstream = %id, "upstream says that it cannot serve"),
                None => {}
            }
        }
    }

    /// Once for all that was asked, and again when it refuses otherwise.
    fn key(&mut self, id: &UpstreamId, refused: Option<RefusedKey>) {
        let Some(last) = self.0.get_mut(id) else { return };
        match refused {
            Some(RefusedKey { why, paths }) if last.key.as_ref() != Some(&why) => {
                tracing::warn!(upstream = %id, paths, "upstream refuses our polls: {why}; what they ask for counts as unknown");
                last.key = Some(why);
            }
            None if last.key.take().is_some() => {
                tracing::info!(upstream = %id, "upstream no longer refuses our polls");
            }
            _ => {}
        }
    }

    /// The first failure in a row is news; how many there are is in the metrics.
    fn failed(&mut self, id: &UpstreamId, failure: &Failure) {
        let Some(last) = self.0.get_mut(id) else { return };
        if !std::mem::replace(&mut last.silent, true) {
            tracing::warn!(upstream = %id, error = %failure, "upstream cannot be asked how it is");
        }
    }
}

impl RefusedKey {
    fn of(degraded: &[Degraded]) -> Option<Self> {
        let refused = |one: &&Degraded| is_about_a_key(&one.found);
        let why = degraded.iter().find(refused)?.found.clone();
        let mut paths: Vec<_> = degraded
            .iter()
            .filter(refused)
            .map(|one| one.expected.as_str())
            .collect();
        paths.dedup();
        let paths = paths.join(", ");
        Some(Self { why, paths })
    }
}

/// The first few of them.
fn names(models: &Models) -> String {
    const FEW: usize = 8;
    let Models::Listed(listed) = models else {
        return "any".to_owned();
    };
    let few: Vec<_> = listed.iter().take(FEW).map(|model| &*model.id).collect();
    match listed.len().saturating_sub(FEW) {
        0 => few.join(", "),
        more => format!("{} and {more} more", few.join(", ")),
    }
}

fn missing(id: &UpstreamId, degraded: &Degraded) {
    let Degraded {
        signal,
        expected,
        found,
    } = degraded;
    let signal = signal.as_str();
    tracing::warn!(upstream = %id, signal, %expected, %found, "a signal is missing: it counts as unknown");
}
