//! Is it known that waiting will not help, or that it may take long?

use std::time::Duration;

use super::Places;
use crate::Moment;
use crate::queue::{Told, Tried};
use crate::request::RequestFacts;
use crate::schedule::{Ending, Reason};

impl Places {
    /// What a request hears from an ending that lets it wait.
    pub(super) fn told(&self, ending: &Ending, tried: &Tried, now: Moment) -> Told {
        let nobody_able = match ending.reason {
            Reason::NoUpstream | Reason::Unhealthy | Reason::NeverHeard | Reason::Excluded => true,
            // Some have told what they have and may never tell more: a name that nobody knows is most likely wrong.
            Reason::ModelsUnknown => !self.finder.published.load().anyone_able(),
            _ => false,
        };
        let again = [ending.until, tried.next_end(now)].into_iter().flatten().min();
        Told { nobody_able, again }
    }

    /// Whether nobody will take the request before its time is over: each who could serve it is left out for it, or has
    /// asked to be left alone, for longer than that. Who is merely busy, or may come back at any time, is waited for; where there
    /// is something else to try, only who is busy.
    pub(super) fn is_in_vain(
        &self,
        (facts, tried): (&RequestFacts, &Tried),
        ending: &Ending,
        max_wait: Duration,
        now: Moment,
    ) -> bool {
        if facts.patience.is_some() && !ending.reason.is_contention() {
            return true;
        }
        let longest = now.saturating_add(max_wait);
        let too_late = |end: Moment| end > longest || facts.deadline.is_some_and(|deadline| deadline < end);
        !ending.reason.is_contention() && self.first_back(facts, tried, now).is_some_and(too_late)
    }

    /// When the first of those who could serve the request can be asked, where none can now and it is known of each.
    fn first_back(&self, facts: &RequestFacts, tried: &Tried, now: Moment) -> Option<Moment> {
        let model = (facts.model.as_deref(), facts.as_facts().reaches_all());
        let only = facts.only.as_deref();
        let snapshot = self.finder.published.load();
        snapshot.first_back(model, only, |id| tried.until(id, now), now)
    }
}
