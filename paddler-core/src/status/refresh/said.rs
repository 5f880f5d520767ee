//! What would an operator want to read in the log, and only once?

use std::collections::HashMap;

use crate::status::{Applied, Degraded, Failure, Health, StatusEvent};
use crate::upstream::{Models, UpstreamId};

/// What was last said of each upstream, so that only news is said.
#[derive(Debug, Default)]
pub(super) struct Said(HashMap<UpstreamId, Last>);

#[derive(Debug, Default)]
struct Last {
    health: Option<Health>,
    silent: bool,
}

/// What one that has become ready has to offer, by its own word.
#[derive(Debug, Default)]
pub(super) struct Offer {
    models: Option<String>,
    slots: Option<u32>,
}

impl Said {
    /// What the upstream of this event offers, if it says by it that it has become ready.
    pub(super) fn becomes_ready(&self, event: &StatusEvent) -> Option<Offer> {
        let StatusEvent::Report { id, report, .. } = event else {
            return None;
        };
        let was = self.0.get(id)?.health;
        (report.health == Some(Health::Ready) && was != report.health).then(|| Offer {
            models: report.models.as_ref().map(names),
            slots: report.slots_total,
        })
    }

    pub(super) fn say(&mut self, applied: &Applied, ready: Option<Offer>) {
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
                self.heard(id, *health, ready.unwrap_or_default());
                degraded.iter().for_each(|one| missing(id, one));
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

    /// The first failure in a row is news; how many there are is in the metrics.
    fn failed(&mut self, id: &UpstreamId, failure: &Failure) {
        let Some(last) = self.0.get_mut(id) else { return };
        if !std::mem::replace(&mut last.silent, true) {
            tracing::warn!(upstream = %id, error = %failure, "upstream cannot be asked how it is");
        }
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
