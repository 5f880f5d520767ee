//! What does a request ask for, and who may answer it?

use std::sync::Arc;

use http::StatusCode;
use tokio::time::Instant;

use super::Passage;
use super::head::Head;
use crate::forward::intake::Intake;
use crate::forward::owners;
use crate::forward::refusal::Refusal;
use crate::forward::timeouts::Allowed;
use crate::forward::upgrade;
use crate::request::{RequestFacts, Scanned};
use crate::upstream::{Only, UpstreamId};

impl Passage<'_> {
    /// What is asked for, by whom, and how long it may take.
    pub(super) fn facts(
        &self,
        head: &Head<'_>,
        intake: &Intake,
        began: Instant,
    ) -> Result<(RequestFacts, Allowed), Refusal> {
        let Self { inner, options, .. } = *self;
        let (now, seed) = (inner.clock.now(), inner.places.next_seed());
        let mut facts = match &intake.scanned {
            None => RequestFacts::from_route(self.route, intake.held.bytes(), now, seed),
            Some(scanned) => RequestFacts::from_scan(self.route, scanned, now, seed)
                .map_err(|error| Refusal::new(StatusCode::NOT_FOUND, "model_not_found", error.to_string()))?,
        };
        facts = facts.named_in(self.path, self.route);
        if head.websocket.is_some() {
            // It is room that is taken for as long as it is open, whatever its path is good for otherwise.
            facts.weight = facts.weight.max(1);
            facts.model = facts.model.or_else(|| upgrade::model(head.uri.query()));
            facts.replayable = false;
        }
        if let Some(client) = self.client {
            client.annotate(&mut facts);
        }
        options.models.resolve(&mut facts);
        let settings = options.models.settings(&facts);
        let allowed = Allowed::new(&options.timeouts, settings.timeouts, head.times, began);
        // How long anybody waits is for the queue to say. A client may want less, and what is left of the whole counts.
        let left = allowed
            .ends
            .map(|ends| ends.saturating_duration_since(Instant::now()));
        let wait = [head.times.max_wait, settings.max_wait, left]
            .into_iter()
            .flatten()
            .min();
        facts.deadline = wait.map(|wait| now.saturating_add(wait));
        // Whoever is trusted to say so knows better.
        facts.priority = head.standing.priority.unwrap_or(facts.priority);
        if let Some(tenant) = head.standing.tenant.clone() {
            // The weight of a gateway's own key is not that of each tenant behind it.
            (facts.tenant, facts.tenant_weight) = (Some(tenant), 1);
        }
        let only = head.parts.extensions.get().map(|Only(ids)| ids.clone());
        let owner = only.is_none().then(|| self.owner(intake)).flatten();
        (facts.only, facts.to_keeper) = (only.or_else(|| owner.clone()), owner.is_some());
        if let Some(host) = &options.annotate {
            host.annotate(&head.parts.headers, &mut facts);
            // Where a host sends it instead is for nobody to keep.
            facts.to_keeper &= facts.only == owner;
        }
        Ok((facts, allowed))
    }

    /// Who keeps what it refers to, in its path or in its body: nobody else could answer. Who has left or cannot be reached
    /// keeps nothing: others say so at once.
    fn owner(&self, intake: &Intake) -> Option<Arc<[UpstreamId]>> {
        let by_body = || intake.scanned.as_ref()?.refers.as_deref();
        let id = owners::in_path(self.path).or_else(by_body)?;
        let owner = self.inner.owners.of(id)?;
        let snapshot = self.inner.published.load();
        let is_there = snapshot
            .find(owner.as_str())
            .is_some_and(|entry| !entry.is_unreachable());
        is_there.then(|| [owner].into())
    }

    /// Whether it is bound to what a request before has left, which no other model knows.
    pub(super) fn stays(&self, intake: &Intake) -> bool {
        let by_body = |scanned: &Scanned| scanned.builds_on_kept;
        intake.scanned.as_ref().is_some_and(by_body) || owners::in_path(self.path).is_some()
    }
}
