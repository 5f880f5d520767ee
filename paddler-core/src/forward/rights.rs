//! Who asks, what may he use, and how much of it?

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::rate::Rate;
use crate::Moment;
use crate::request::{ModelRules, RequestFacts};
use crate::status::Snapshot;

/// Says who presents a key. Implement it to look keys up elsewhere; `Keys` (feature `keys`) holds them itself.
///
/// ```
/// use std::sync::Arc;
/// use paddler_core::forward::{Authorise, Client};
///
/// /// Everybody who knows the word, as one client with one allowance.
/// #[derive(Debug)]
/// struct Password(Arc<Client>);
///
/// impl Authorise for Password {
///     fn client(&self, key: &[u8]) -> Option<Arc<Client>> {
///         // A real one compares hashes in constant time.
///         (key == b"open sesame").then(|| self.0.clone())
///     }
/// }
///
/// let mut anybody = Client::new("anybody");
/// anybody.requests_per_minute = Some(600);
/// let keys = Password(Arc::new(anybody));
/// assert_eq!(&*keys.client(b"open sesame").unwrap().name, "anybody");
/// ```
pub trait Authorise: fmt::Debug + Send + Sync + 'static {
    /// Whose key this is; `None`: nobody's. It must take the same time for every wrong key.
    ///
    /// It is called on the runtime, for each request: it must not wait for a disk or another service. Keep what you look up
    /// in a map, and have a task of yours renew that. A client must stay the same one while it is renewed, or go on with
    /// what was used ([`Client::continuing`]), for its limits to hold.
    fn client(&self, key: &[u8]) -> Option<Arc<Client>>;
}

/// Somebody who may use the router. Clones share what is used of the allowance.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Client {
    /// What he is called, in messages and in the log. Never the key.
    pub name: Arc<str>,
    /// The models he may use, by any of their names, those by [`ModelRules`] among them; an adapter may be used by whoever may use its base. Default `None`:
    /// all. With a list, each request that goes to an upstream has to name its model, and an adapter that it asks for beside
    /// that (SGLang's `lora_path`, and all keys that begin with `lora`, `adapter` or `peft`) has to be his too; one that goes by
    /// a number (llama.cpp's `lora`) is refused.
    pub models: Option<BTreeSet<Arc<str>>>,
    /// How many requests he may send in a minute; a minute's worth at once. One counts when it comes, whatever becomes of it:
    /// it was asked. Only those refused for this limit or for `max_in_flight` do not. 0: none. Default `None`: any number.
    pub requests_per_minute: Option<u32>,
    /// How many tokens he may use in a minute, those of prompts and of answers together; a minute's worth at once. When a
    /// request comes, its prompt is counted as it is estimated (see [`RequestFacts::from_scan`]); when its answer has ended,
    /// what that says it used. So answers may take him beyond, and he waits the longer. An answer that does not say, and is
    /// no stream whose events could be counted, counts for nothing. A request that no engine has worked on (it was refused
    /// here or there, or its client left while it waited) uses none; one that an engine answers with 4xx uses its estimate, up
    /// to a minute's worth. No request costs more than an hour's worth. 0: none. Default `None`: any number.
    pub tokens_per_minute: Option<u64>,
    /// How many requests may be under way, those that wait among them. 0: none. Default `None`: any number.
    pub max_in_flight: Option<u32>,
    /// The priority of his requests: [`RequestFacts::priority`]. Default 0.
    pub priority: i32,
    /// Who pays: [`RequestFacts::tenant`]. Default: the name.
    pub tenant: Arc<str>,
    /// The share that the tenant gets of a full pool, against others'. Default 1.
    pub weight: u32,
    /// Whether he may ask why his requests went where they went, by `x-paddler-explain`: names of upstreams, models and labels
    /// are in the answer. Default false.
    pub explain: bool,
    used: Arc<Used>,
}

/// What is used of an allowance.
#[derive(Debug, Default)]
struct Used {
    requests: Rate,
    tokens: Rate,
    in_flight: AtomicU32,
}

/// What of a client's may be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// Requests under way.
    Concurrency,
    /// Requests a minute.
    Requests,
    /// Tokens a minute.
    Tokens,
}

impl Limit {
    /// The word used in answers and metrics.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Concurrency => "key_concurrency",
            Self::Requests => "key_rate",
            Self::Tokens => "key_tokens",
        }
    }
}

/// Why a client may send nothing for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exceeded {
    pub(super) limit: Limit,
    /// How much that is.
    pub(super) most: u64,
    /// When to come again, if that can be said.
    pub(super) wait: Option<Duration>,
}

impl Client {
    /// Somebody of this name who may do everything.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        let name = name.into();
        Self {
            tenant: name.clone(),
            name,
            models: None,
            requests_per_minute: None,
            tokens_per_minute: None,
            max_in_flight: None,
            priority: 0,
            weight: 1,
            explain: false,
            used: Arc::default(),
        }
    }

    /// Goes on with what `before` has used: for the same client under other limits. Two requests of two that were used are
    /// two of the new limit too.
    #[must_use]
    pub fn continuing(mut self, before: &Self) -> Self {
        self.used = before.used.clone();
        self
    }

    /// Whether he may use the model that a request names.
    ///
    /// A name is his if it is on his list, or if wherever it is served it stands for a model on the list: an alias for its
    /// model, an adapter for its base. Where upstreams disagree, one that serves something else under it is enough to refuse
    /// it. No name at all would be any model, so that is nobody's with a list.
    pub fn may_use(&self, model: Option<&str>, snapshot: &Snapshot) -> bool {
        match (&self.models, model) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(listed), Some(model)) => is_among(listed, model, snapshot, DEEPEST),
        }
    }

    /// Whether he may ask for this name where these rules say what is meant by it.
    ///
    /// A name that stands for others is his if it is on his list, or if all that it stands for is his: which of them a request
    /// gets must not decide it.
    pub fn may_ask(&self, name: &str, rules: &ModelRules, snapshot: &Snapshot) -> bool {
        let mut targets = rules.targets(name).peekable();
        if targets.peek().is_none() {
            return self.may_use(Some(name), snapshot);
        }
        self.models.as_ref().is_none_or(|listed| listed.contains(name))
            || targets.all(|target| self.may_use(Some(&target), snapshot))
    }

    /// Whether he may have the model that his request is for now: the one that he asked for, or one that the host has set.
    pub(super) fn may_have(&self, facts: &RequestFacts, rules: &ModelRules, snapshot: &Snapshot) -> bool {
        match (&facts.model, &facts.asked) {
            (Some(model), Some(asked)) if rules.targets(asked).any(|target| *target == **model) => {
                self.may_ask(asked, rules, snapshot)
            }
            (Some(model), None) => {
                self.may_use(Some(model), snapshot) && self.may_ask(model, rules, snapshot)
            }
            (model, _) => self.may_use(model.as_deref(), snapshot),
        }
    }

    /// One more request is under way until this is dropped.
    pub(super) fn begin(&self, now: Moment) -> Result<InUse, Exceeded> {
        let before = self.used.in_flight.fetch_add(1, Relaxed);
        let in_use = InUse {
            used: self.used.clone(),
            charged: None,
            worked_on: false,
        };
        if let Some(limit) = self.max_in_flight.filter(|limit| before >= *limit) {
            return Err(Exceeded {
                limit: Limit::Concurrency,
                most: limit.into(),
                wait: None,
            });
        }
        if let Some(most) = self.requests_per_minute.map(u64::from) {
            self.used.requests.take(1, most, now).map_err(|wait| Exceeded {
                limit: Limit::Requests,
                most,
                wait: Some(wait),
            })?;
        }
        Ok(in_use)
    }

    /// Charges what the request is thought to take.
    pub(super) fn charge(&self, in_use: &mut InUse, tokens: u64, now: Moment) -> Result<(), Exceeded> {
        let Some(most) = self.tokens_per_minute else {
            return Ok(());
        };
        self.used
            .tokens
            .take(tokens, most, now)
            .map_err(|wait| Exceeded {
                limit: Limit::Tokens,
                most,
                wait: Some(wait),
            })?;
        in_use.charged = Some(tokens);
        Ok(())
    }

    /// Adds what is known of the client to the facts of his request.
    pub(super) fn annotate(&self, facts: &mut RequestFacts) {
        facts.priority = self.priority;
        facts.tenant = Some(self.tenant.clone());
        facts.tenant_weight = self.weight;
    }
}

/// How many bases an adapter may have, one over the other.
const DEEPEST: u32 = 4;

fn is_among(listed: &BTreeSet<Arc<str>>, name: &str, snapshot: &Snapshot, deepest: u32) -> bool {
    if listed.contains(name) {
        return true;
    }
    let Some(row) = snapshot.model(name) else {
        return false;
    };
    let mut models = row.stands_for().peekable();
    let is_listed = |(model, base): (&str, Option<&str>)| {
        listed.contains(model)
            || base.is_some_and(|base| deepest > 0 && is_among(listed, base, snapshot, deepest - 1))
    };
    models.peek().is_some() && models.all(is_listed)
}

/// A request that is under way, and what was charged for it.
#[derive(Debug)]
pub(super) struct InUse {
    used: Arc<Used>,
    /// So many tokens.
    charged: Option<u64>,
    worked_on: bool,
}

impl InUse {
    /// Whether what the answer uses counts.
    pub(super) fn counts_tokens(&self) -> bool {
        self.charged.is_some()
    }

    /// Whether an engine may have worked on it. If none has when this is dropped, it has used no tokens.
    pub(super) fn worked_on(&mut self, worked_on: bool) {
        self.worked_on = worked_on;
    }

    /// The answer says that the request was wrong.
    pub(super) fn found_wrong(&mut self, now: Moment) {
        if let Some(charged) = self.charged.take() {
            self.used.tokens.found_wrong(charged, now);
        }
    }

    /// The answer has told what was used; of a prompt that it does not count, the estimate stays.
    pub(super) fn used(&mut self, prompt: Option<u64>, output: u64, now: Moment) {
        if let Some(charged) = self.charged.take() {
            let tokens = prompt.unwrap_or(charged).saturating_add(output);
            self.used.tokens.correct(charged, tokens, now);
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(charged) = self.charged.filter(|_| !self.worked_on) {
            self.used.tokens.give_back(charged);
        }
        self.used.in_flight.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests;
