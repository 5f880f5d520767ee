//! What do metrics tell that do not stand below the upstream's URL, and what if nobody answers there?

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Uri};
use tokio::time::timeout;

use super::ask::{Answered, call};
use crate::forward::{Body, BoxError, chain};
use crate::source::Plan;
use crate::status::{Report, Signal};
use crate::upstream::{Connect, Engine, Upstream, UpstreamSpec};

/// The longest that they may take, and no more than a third of a poll: who serves requests is not given up because nobody
/// answers there.
const LONGEST: Duration = Duration::from_secs(1);

/// Metrics that do not stand below the upstream's URL.
#[derive(Debug)]
pub(super) struct Elsewhere {
    /// Where they stand, as it may be shown to anybody: a query may hold a secret, and user info is refused.
    shown: String,
    /// What is asked for which path; or why there is no way to it.
    way: Result<(Arc<dyn Upstream>, Uri), String>,
    missed: Option<Missed>,
}

/// Nobody has answered.
#[derive(Debug)]
struct Missed {
    why: String,
    /// So many polls do without before one asks again.
    rests: u64,
}

impl Elsewhere {
    /// `None`: they stand below the upstream's URL.
    pub(super) fn of(spec: &UpstreamSpec, engine: Engine, connect: &dyn Connect) -> Option<Self> {
        let (at, path) = spec.metrics_at(engine)?;
        let shown = path.split_once('?').map_or(&*path, |(path, _)| path);
        let shown = format!("{}{shown}", at.url);
        let way = || Ok((connect.connect(&at)?, path.parse::<Uri>()?));
        let way = way().map_err(|error: BoxError| chain(&*error));
        Some(Self {
            shown,
            way,
            missed: None,
        })
    }

    /// What stands there, or why nothing is known of it: after a miss only each tenth poll asks, since one that waits takes its
    /// time and holds a place. `limit` is how long a poll may take.
    pub(super) async fn get(&mut self, limit: Duration) -> Result<Answered, String> {
        if let Some(missed) = &mut self.missed
            && let Some(fewer) = missed.rests.checked_sub(1)
        {
            missed.rests = fewer;
            return Err(missed.why.clone());
        }
        let (upstream, path) = self.way.as_ref().map_err(String::clone)?;
        let limit = LONGEST.min(limit / 3);
        // Beforehand, as the poll may be over before the answer is there.
        let missed = self.missed.insert(Missed {
            why: format!("no answer within {limit:?}"),
            rests: Plan::SLOW_EVERY - 1,
        });
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = path.clone();
        match timeout(limit, call(&**upstream, path.path(), request)).await {
            Ok(Ok(answer)) => {
                self.missed = None;
                Ok(answer)
            }
            Ok(Err(failure)) => {
                missed.why = failure.message;
                Err(missed.why.clone())
            }
            Err(_) => Err(missed.why.clone()),
        }
    }

    /// Says of what would stand there that it is unknown, and why.
    pub(super) fn missing(&self, engine: Engine, why: &str, report: &mut Report) {
        let mut signals = vec![Signal::Running, Signal::Waiting];
        if engine != Engine::Llamacpp {
            signals.push(Signal::KvCache);
        }
        for signal in signals {
            report.degrade(signal, self.shown.clone(), why);
        }
    }
}
