//! What would an operator want to read in the log, and only once?

use std::collections::HashMap;

use crate::status::{Applied, Degraded, Failure, Health};
use crate::upstream::UpstreamId;

/// What was last said of each upstream, so that only news is said.
#[derive(Debug, Default)]
pub(super) struct Said(HashMap<UpstreamId, Last>);

#[derive(Debug, Default)]
struct Last {
    health: Option<Health>,
    silent: bool,
}

impl Said {
    pub(super) fn say(&mut self, applied: &Applied) {
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
                self.heard(id, *health);
                degraded.iter().for_each(|one| missing(id, one));
            }
            Applied::Failed { id, failure, .. } => self.failed(id, failure),
            // The board has said itself that it is full.
            Applied::Unchanged(_) | Applied::Unknown(_) | Applied::Overtaken(_) | Applied::Full(_) => {}
        }
    }

    fn heard(&mut self, id: &UpstreamId, health: Option<Health>) {
        let Some(last) = self.0.get_mut(id) else { return };
        if std::mem::take(&mut last.silent) {
            tracing::info!(upstream = %id, "upstream says again how it is");
        }
        if std::mem::replace(&mut last.health, health) != health {
            match health {
                Some(Health::Ready) => tracing::info!(upstream = %id, "upstream is ready"),
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

fn missing(id: &UpstreamId, degraded: &Degraded) {
    let Degraded {
        signal,
        expected,
        found,
    } = degraded;
    let signal = signal.as_str();
    tracing::warn!(upstream = %id, signal, %expected, %found, "a signal is missing: it counts as unknown");
}
