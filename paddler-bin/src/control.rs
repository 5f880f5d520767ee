//! What is there to be looked at and changed while it serves?

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use paddler_core::forward::{Keys, Router};
use paddler_core::observe::export::Exports;
use paddler_core::status::{Members, Snapshot, StatusLoop};
use paddler_core::upstream::{UpstreamId, UpstreamSpec};
use paddler_core::{Clock, Moment};
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::front::Desk;
use crate::reload::{Report, Request};

/// How often one who waits for news of the board looks: it publishes every 10 ms at most.
const LOOK: Duration = Duration::from_millis(10);

/// How many upstreams the API adds at most: each one more is compared with all.
pub(crate) const MOST_ADDED: usize = 4096;

/// Why an upstream was not added.
pub(crate) enum NotAdded {
    /// It is there under another id.
    IsThere(UpstreamId),
    TooMany,
}

/// What the management API and reloads share.
pub(crate) struct Control {
    pub(crate) router: Router,
    pub(crate) desk: Desk,
    pub(crate) statuses: StatusLoop,
    clock: Clock,
    /// The keys that the API wants, if it wants any.
    keys: Mutex<Option<Arc<Keys>>>,
    last: Mutex<Option<Report>>,
    reloads: mpsc::Sender<Request>,
    /// The upstreams that the API has added.
    added: Members,
    /// Where figures and trails go.
    pub(crate) exports: Exports,
}

fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Control {
    /// `reloads`: to the one who reloads, if somebody does. `added`: what puts the upstreams into force that the API adds.
    pub(crate) fn new(
        desk: Desk,
        statuses: StatusLoop,
        clock: Clock,
        keys: Option<Keys>,
        (added, reloads): (Members, mpsc::Sender<Request>),
        exports: Exports,
    ) -> Self {
        Self {
            router: desk.router().clone(),
            desk,
            statuses,
            clock,
            keys: Mutex::new(keys.map(Arc::new)),
            last: Mutex::default(),
            reloads,
            added,
            exports,
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(crate) fn management_keys(&self) -> Option<Arc<Keys>> {
        lock(&self.keys).clone()
    }

    pub(crate) fn set_management_keys(&self, keys: Option<Keys>) {
        *lock(&self.keys) = keys.map(Arc::new);
    }

    /// How the last reload went, if there was one.
    pub(crate) fn last_reload(&self) -> Option<Report> {
        lock(&self.last).clone()
    }

    pub(crate) fn reloaded(&self, report: Report) {
        self.router
            .metrics()
            .config_read_again(report.is_sound(), self.now());
        *lock(&self.last) = Some(report);
    }

    /// Reads the config again. `None`: nobody does that here.
    pub(crate) async fn reload(&self) -> Option<Report> {
        let (tell, told) = oneshot::channel();
        self.reloads.send(tell).await.ok()?;
        told.await.ok()
    }

    /// Adds an upstream, in the place of one that was added under its id. False: there was none.
    ///
    /// # Errors
    /// Another one was added that is at the same place, or there are as many as may be.
    pub(crate) fn add(&self, spec: UpstreamSpec) -> Result<bool, NotAdded> {
        let mut done = Ok(false);
        self.added.edit(|added| {
            let twin = |one: &&UpstreamSpec| one.id != spec.id && one.same_place(&spec);
            if let Some(twin) = added.iter().find(twin) {
                done = Err(NotAdded::IsThere(twin.id.clone()));
                return;
            }
            let many = added.len();
            added.retain(|one| one.id != spec.id);
            done = Ok(added.len() < many);
            if added.len() >= MOST_ADDED {
                done = Err(NotAdded::TooMany);
                return;
            }
            added.push(spec);
        });
        done
    }

    /// All upstreams that are there.
    pub(crate) fn ids(&self) -> HashSet<UpstreamId> {
        let there = self.router.published().load();
        there.iter().map(|(_, entry)| entry.spec().id.clone()).collect()
    }

    /// Takes an upstream away that was added. False: it was not.
    pub(crate) fn remove(&self, id: &UpstreamId) -> bool {
        let mut removed = false;
        self.added.edit(|added| {
            let many = added.len();
            added.retain(|spec| spec.id != *id);
            removed = added.len() < many;
        });
        removed
    }

    /// Done once this holds of the state in force.
    pub(crate) async fn until(&self, holds: impl Fn(&Snapshot) -> bool) {
        while !holds(&self.router.published().load()) {
            sleep(LOOK).await;
        }
    }
}
