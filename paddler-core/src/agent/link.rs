//! How does an agent speak to one balancer?
//!
//! In a request whose body goes on. It ends after a while, and the next one follows over the same connection: the answer proves
//! that the balancer has heard all of it, which bytes that a dead connection takes do not.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::beside::{AgentOptions, Latest};
use super::said::{self, Word};
use crate::forward::{Body, BoxError, chain};
use crate::request::path::encode_part;
use crate::schedule::{mix, stable_hash};
use crate::upstream::{Upstream, UpstreamSpec};

/// How long a request goes on, in beats.
const BEATS: u32 = 10;

/// How long the answer may take once the request has ended.
const ANSWER: Duration = Duration::from_secs(3);

/// The first and the longest rest after a failure; it doubles.
const FIRST_REST: Duration = Duration::from_millis(250);
const LONGEST_REST: Duration = Duration::from_secs(10);

/// Messages that may wait to be sent: a balancer that takes none of them is not there.
const QUEUE: usize = 4;

/// What the balancer says is read so far.
const LONGEST_ANSWER: usize = 4 << 10;

/// One balancer, and what it is told.
#[derive(Debug)]
pub(super) struct Link {
    upstream: Arc<dyn Upstream>,
    url: String,
    path: Uri,
    spec: UpstreamSpec,
    name: Option<String>,
    instance: Arc<str>,
    beat: Duration,
    seed: u64,
}

/// How a request ended.
enum Ended {
    /// The balancer has heard it all.
    Heard,
    /// It has heard that this was the last.
    Stopped,
    Failed(String),
}

/// The path under which an agent speaks.
fn path(id: &str) -> Uri {
    let path = format!("/api/v1/agents/{}/status", encode_part(id));
    // It is of characters that may stand there.
    path.parse().unwrap_or_default()
}

impl Link {
    /// `instance`: another one for each start of an agent.
    pub(super) fn new(
        options: &AgentOptions,
        instance: Arc<str>,
        balancer: &UpstreamSpec,
        upstream: Arc<dyn Upstream>,
    ) -> Self {
        Self {
            upstream,
            url: balancer.url.clone(),
            path: path(options.upstream.id.as_str()),
            spec: options.upstream.clone(),
            name: options.name.clone(),
            instance,
            beat: options.beat.max(Duration::from_millis(50)),
            seed: options.seed
                ^ stable_hash(balancer.url.as_bytes())
                ^ stable_hash(options.upstream.id.as_str().as_bytes()),
        }
    }

    /// Speaks until it is told to stop.
    pub(super) async fn run(self, mut news: watch::Receiver<Latest>, mut stopping: watch::Receiver<bool>) {
        let (mut failures, mut is_heard) = (0, false);
        // What is said first says how the engine is, if it can be asked at all.
        tokio::select! {
            () = asked(&mut news) => {}
            () = told(&mut stopping) => return,
        }
        loop {
            let long = if is_heard { self.beat * BEATS } else { self.beat };
            match self.speak(long, &mut news, &mut stopping).await {
                Ended::Stopped => return,
                Ended::Heard => {
                    if !std::mem::replace(&mut is_heard, true) {
                        tracing::info!(balancer = self.url, "the balancer listens");
                    }
                    failures = 0;
                }
                Ended::Failed(why) => {
                    if std::mem::take(&mut is_heard) || failures == 0 {
                        tracing::warn!(balancer = self.url, "the balancer is not told: {why}");
                    }
                    failures += 1;
                    tokio::select! {
                        () = sleep(self.rest(failures)) => {}
                        () = told(&mut stopping) => return,
                    }
                }
            }
        }
    }

    /// The time after so many failures in a row: with chance in it, so that a thousand agents do not come at once.
    fn rest(&self, failures: u32) -> Duration {
        let doubled = FIRST_REST
            .saturating_mul(1 << (failures - 1).min(16))
            .min(LONGEST_REST);
        let draw = mix(self
            .seed
            .wrapping_add(u64::from(failures).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        doubled.mul_f64(0.5 + 0.5 * (draw % 1_000) as f64 / 1_000.0)
    }

    /// One request, of so long.
    async fn speak(
        &self,
        long: Duration,
        news: &mut watch::Receiver<Latest>,
        stopping: &mut watch::Receiver<bool>,
    ) -> Ended {
        let (to, body) = mpsc::channel(QUEUE);
        let mut answer = self.upstream.call(self.request(body));
        let ends = Instant::now() + long;
        let latest = news.borrow_and_update().clone();
        let (mut said, mut changes) = (Instant::now(), latest.changes);
        let first = said::hello(
            &self.spec,
            (self.name.as_deref(), &self.instance),
            self.beat,
            latest.word(),
        );
        let say = |message: Vec<u8>| to.try_send(message.into());
        let mut taken = say(first);
        let mut stopped = false;
        let early = loop {
            if taken.is_err() {
                break None;
            }
            // A word that a poll brings is better than one that only says that nothing is new: wait for it a little.
            let due = said + self.beat;
            let word = tokio::select! {
                early = &mut answer => break Some(early),
                () = told(stopping) => {
                    stopped = true;
                    break None;
                }
                Ok(()) = news.changed() => {
                    let latest = news.borrow_and_update().clone();
                    let is_new = latest.changes != changes;
                    if !is_new && said.elapsed() < self.beat.mul_f64(0.7) {
                        continue;
                    }
                    changes = latest.changes;
                    latest.word()
                }
                () = sleep_until(due) => Word::Alive,
                () = sleep_until(ends) => break None,
            };
            said = Instant::now();
            taken = say(said::next(word));
        };
        if let Some(answer) = early {
            return match heard(answer, false).await {
                Ended::Heard => Ended::Failed("it listens to no more".to_owned()),
                ended => ended,
            };
        }
        if stopped {
            taken = say(said::next(Word::Bye));
        }
        drop(to);
        if taken.is_err() {
            return Ended::Failed("it takes nothing of what is said".to_owned());
        }
        match timeout(ANSWER, answer).await {
            Ok(answer) => heard(answer, stopped).await,
            Err(_) => Ended::Failed(format!("no answer within {ANSWER:?}")),
        }
    }

    fn request(&self, body: mpsc::Receiver<Bytes>) -> Request<Body> {
        let mut request = Request::new(Body::from_channel(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        let kind = HeaderValue::from_static("application/x-ndjson");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        request
    }
}

/// Ready once it is told to stop, or nobody is left who could tell.
async fn told(stopping: &mut watch::Receiver<bool>) {
    stopping.wait_for(|stop| *stop).await.ok();
}

/// Ready once the engine was asked.
async fn asked(news: &mut watch::Receiver<Latest>) {
    news.wait_for(|latest| latest.changes > 0).await.ok();
}

type Answer = Result<Response<Body>, BoxError>;

async fn heard(answer: Answer, stopped: bool) -> Ended {
    let response = match answer {
        Ok(response) => response,
        Err(error) => return Ended::Failed(chain(&*error)),
    };
    let status = response.status();
    let body = timeout(
        ANSWER,
        Limited::new(response.into_body(), LONGEST_ANSWER).collect(),
    )
    .await;
    if status.is_success() {
        return if stopped { Ended::Stopped } else { Ended::Heard };
    }
    let text = body
        .ok()
        .and_then(Result::ok)
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    // Others than the management listener say so.
    let where_else = if matches!(
        status,
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
    ) {
        " (agents are heard at the management listener of the balancer, port 8081 unless told otherwise)"
    } else {
        ""
    };
    Ended::Failed(format!("{status}: {text}{where_else}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment_of_a_path() {
        assert_eq!(path("10.0.0.3:8080"), "/api/v1/agents/10.0.0.3%3A8080/status");
        assert_eq!(path("a/é?"), "/api/v1/agents/a%2F%C3%A9%3F/status");
    }
}
