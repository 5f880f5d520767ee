//! What is a client told for whom there is no place?
//!
//! Why there is none, and when to come again: when the queue will have moved on, or an upstream wants work again.

use std::time::Duration;

use http::StatusCode;

use super::local;
use super::refusal::{Refusal, named};
use super::rights::Client;
use super::waiting::{NoPlace, Places};
use crate::Moment;
use crate::queue::QueueFull;
use crate::request::{ModelRules, RequestFacts};
use crate::status::Published;

/// What an answer goes by.
pub(super) struct Circumstances<'a> {
    pub(super) places: &'a Places,
    pub(super) published: &'a Published,
    pub(super) now: Moment,
    /// When to come again where nothing says it better.
    pub(super) retry_after: Duration,
    pub(super) facts: &'a RequestFacts,
    pub(super) models: &'a ModelRules,
    /// Who asks, if that is known.
    pub(super) client: Option<&'a Client>,
}

impl NoPlace {
    pub(super) fn refusal(self, known: &Circumstances<'_>) -> Refusal {
        let model = known.facts.model.as_deref();
        let instead = known.facts.as_facts().reaches_all();
        let asked = ((model, instead), known.facts.only.as_deref());
        let named = named(model, known.facts.asked.as_deref());
        let model = named.as_deref();
        let snapshot = known.published.load();
        if let Some(paused) = Refusal::of_pause(self.ending(), &snapshot, asked, known.now) {
            return paused;
        }
        let busy = self.ending().reason.is_contention();
        let after = known.retry_after(busy);
        match self {
            Self::Ending { ending, waited } => {
                let mut refusal = Refusal::of_ending(&ending, model, after);
                if waited {
                    let waited = known.now.since(known.facts.arrived);
                    refusal.message = format!(
                        "{}, also after waiting {:.1} s",
                        refusal.message,
                        waited.as_secs_f64()
                    );
                }
                refusal = refusal.with_length(known.facts.least_tokens, &snapshot);
                if refusal.reason == "model_not_found" {
                    let models = known.models();
                    let models = if models.is_empty() { "none" } else { &models };
                    refusal.message = format!("{}; known: {models}", refusal.message);
                }
                refusal
            }
            Self::Full { full, ending } if busy => {
                let what = match full {
                    QueueFull::Bytes => {
                        "the bodies of the requests that wait take all the memory meant for them"
                    }
                    _ => "as many requests wait as may",
                };
                let message = format!("{what}, since every upstream is busy ({})", ending.reason);
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, "queue_full", message).retry_after(after)
            }
            Self::Evicted { ending } if busy => {
                let message = format!(
                    "the queue is full of requests that come first, since every upstream is busy ({})",
                    ending.reason
                );
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, "evicted", message).retry_after(after)
            }
            Self::Full { ending, .. } | Self::Evicted { ending } => Refusal::of_ending(&ending, model, after),
        }
    }
}

impl Circumstances<'_> {
    /// When to come again: when the queue will have moved on by as many as wait before such a request. Where nobody can
    /// serve, how fast it moves says nothing.
    fn retry_after(&self, busy: bool) -> Duration {
        if busy {
            self.places.retry_after(self.facts.priority, self.retry_after)
        } else {
            self.retry_after
        }
    }

    /// The names that could have been asked for, as many as a person would read.
    fn models(&self) -> String {
        let snapshot = self.published.load();
        let rows = local::rows(&snapshot, (self.models, self.client));
        let mut names: Vec<_> = rows.into_keys().collect();
        let more = names.len().saturating_sub(20);
        names.truncate(20);
        let listed = names.join(", ");
        if more > 0 {
            format!("{listed} and {more} more")
        } else {
            listed
        }
    }
}
