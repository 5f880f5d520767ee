//! What if an upstream refuses the key that it gets from us?
//!
//! Its client has sent no such key and can mend nothing. So it counts as a refusal of that upstream: others are asked. What it
//! says of the key, often with part of it, is for nobody else to read.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::refusal::{REASON, Refusal};
use crate::Moment;
use crate::health::{Fault, Verdict};
use crate::upstream::http::{UpstreamKey, passes_clients_key};
use crate::upstream::{UpstreamId, UpstreamSpec};

/// The reason that a client is told.
pub(super) const UPSTREAM_KEY: &str = "upstream_key";

/// What a router behind this one says where it refuses the key. With any other word it is about the request.
const ABOUT_KEYS: [&str; 2] = ["api_key", "model_not_allowed"];

/// How long nothing more is said of the same upstream.
const SAID_FOR: Duration = Duration::from_secs(60);

/// For how many upstreams it is known when that was said.
const MOST: usize = 1_024;

/// Whether this answer refuses a key that is not the client's own: ours was put in, or his was taken out. `instead`: another model
/// serves the request than its own.
pub(super) fn is_refused(spec: &UpstreamSpec, instead: bool, answer: (StatusCode, &HeaderMap)) -> bool {
    let (status, headers) = answer;
    let refuses = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let about_keys = || {
        headers
            .get(REASON)
            .is_none_or(|reason| ABOUT_KEYS.iter().any(|word| reason == word))
    };
    let is_ours = || !passes_clients_key(spec, instead) || spec.extensions.get::<UpstreamKey>().is_some();
    refuses && about_keys() && is_ours()
}

/// What that says of the upstream. A key that is not known fails with every request; what is forbidden may be about one.
pub(super) fn verdict(status: StatusCode) -> Verdict {
    if status == StatusCode::UNAUTHORIZED {
        Verdict::Fault(Fault::Unavailable)
    } else {
        Verdict::Answered
    }
}

/// What the client gets if nobody else takes his request.
pub(super) fn refusal(upstream: &UpstreamId, status: StatusCode) -> Refusal {
    let message = format!(
        "{upstream} refuses the key that it gets from this router ({}); no key of the client's is at fault: whoever runs the \
         router mends it with another one in the `api_key_file` of {upstream}",
        status.as_u16()
    );
    Refusal::new(StatusCode::BAD_GATEWAY, UPSTREAM_KEY, message)
}

/// Says it in the log, and not with every request.
#[derive(Debug, Default)]
pub(super) struct Said(Mutex<HashMap<UpstreamId, Moment>>);

impl Said {
    pub(super) fn say(&self, upstream: &UpstreamId, status: StatusCode, now: Moment) {
        if self.is_due(upstream, now) {
            let status = status.as_u16();
            tracing::warn!(%upstream, status, "refuses the key that it gets from this router: put another one into its api_key_file");
        }
    }

    fn is_due(&self, upstream: &UpstreamId, now: Moment) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.get(upstream).is_some_and(|at| now.since(*at) < SAID_FOR) {
            return false;
        }
        if said.len() >= MOST {
            said.retain(|_, at| now.since(*at) < SAID_FOR);
        }
        // Of so many at once, no more is said.
        let has_room = said.len() < MOST || said.contains_key(upstream);
        if has_room {
            said.insert(upstream.clone(), now);
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_upstream_it_is_said_once_a_minute() {
        let said = Said::default();
        let at = |seconds| Moment::ZERO.saturating_add(Duration::from_secs(seconds));
        let id = |name: &str| UpstreamId::new(name).unwrap();
        let due = |name: &str, seconds| said.is_due(&id(name), at(seconds));
        assert!(due("a", 1) && !due("a", 60) && due("b", 60) && due("a", 61) && !due("a", 62));
        for n in 0..2 * MOST {
            said.is_due(&id(&format!("n{n}")), at(100));
        }
        assert_eq!(said.0.lock().unwrap().len(), MOST);
        assert!(due("a", 200) && !due("a", 201));
    }
}
