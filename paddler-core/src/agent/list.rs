//! How do agents' upstreams come onto the board?

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

use super::frames::{Frames, Unreadable};
use super::registry::{Refused, Registry, Stream};
use super::said::{Said, Word, names_fit};
use super::{old, said};
use crate::clock::Clock;
use crate::forward::BoxError;
use crate::source::paddler;
use crate::status::{Published, StatusEvent, StatusSource, Unpolled};
use crate::upstream::{Extensions, UpstreamId};

/// How often it is looked for who says nothing.
const LOOK: Duration = Duration::from_millis(100);

/// How long the first message of a stream may take: agents of Paddler 1.x open it when they start, and speak at their next look
/// at the engine.
const FIRST: Duration = Duration::from_secs(360);

/// How agents are listened to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AgentsOptions {
    /// The most upstreams that agents may tell of. Default 4096.
    pub most: usize,
    /// The largest message, in bytes. Default 256 KiB.
    pub largest_message: usize,
    /// The most names of models, and of adapters, that one upstream may have. Default 4096.
    pub most_names: usize,
    /// What each upstream gets, such as the [`UpstreamKey`](crate::upstream::http::UpstreamKey) that all engines want.
    pub extensions: Extensions,
}

impl Default for AgentsOptions {
    fn default() -> Self {
        Self {
            most: 4096,
            largest_message: 256 << 10,
            most_names: 4096,
            extensions: Extensions::default(),
        }
    }
}

/// What an agent speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// That of `paddler agent`.
    Own,
    /// That of Paddler 1.x, in either of its shapes.
    Paddler1,
}

/// Why a stream of an agent was not listened to any more.
#[derive(Debug)]
#[non_exhaustive]
pub enum StreamEnd {
    /// What it says cannot be read.
    Unreadable(Unreadable),
    /// It is not wanted.
    Refused(Refused),
    /// It broke off.
    Broken(BoxError),
}

impl StreamEnd {
    /// The status that says it.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Unreadable(_) | Self::Broken(_) => StatusCode::BAD_REQUEST,
            Self::Refused(Refused::Replaced | Refused::Taken) => StatusCode::CONFLICT,
            Self::Refused(Refused::Unknown) => StatusCode::GONE,
            Self::Refused(Refused::Silent) => StatusCode::REQUEST_TIMEOUT,
            Self::Refused(Refused::Full) => StatusCode::INSUFFICIENT_STORAGE,
        }
    }
}

impl fmt::Display for StreamEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => why.fmt(f),
            Self::Refused(why) => why.fmt(f),
            Self::Broken(why) => write!(f, "the stream broke off: {why}"),
        }
    }
}

impl std::error::Error for StreamEnd {}

/// Listens to agents: for whoever has the listener. Clones are about the same agents.
#[derive(Debug, Clone)]
pub struct Agents(Arc<Shared>);

/// The upstreams that agents tell of, and how they are. See [`Agents::new`].
#[derive(Debug)]
pub struct AgentList {
    shared: Arc<Shared>,
    look: Instant,
}

#[derive(Debug)]
struct Shared {
    options: AgentsOptions,
    clock: Clock,
    published: Published,
    registry: Mutex<Registry>,
    /// For the one who tells the board.
    news: Notify,
    /// Counts what has changed, for those who look on.
    changes: watch::Sender<u64>,
}

impl Shared {
    fn registry(&self) -> MutexGuard<'_, Registry> {
        // Nothing in there is left half changed.
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.news.notify_one();
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// A stream as long as somebody reads it. Dropped, it has broken off.
struct Listening<'a> {
    shared: &'a Shared,
    stream: Stream,
    /// It came to its end.
    whole: bool,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        let broken = (!self.whole).then(Instant::now);
        self.shared.registry().close(&self.stream, broken);
        self.shared.changed();
    }
}

impl Agents {
    /// Listens to nobody yet. The list is to be a source of the board whose state is `published`, which keeps time by `clock`.
    pub fn new(options: AgentsOptions, published: Published, clock: Clock) -> (Self, AgentList) {
        let mut options = options;
        options.extensions.insert(Unpolled);
        let shared = Arc::new(Shared {
            registry: Mutex::new(Registry::new(options.most, published.clone())),
            options,
            clock,
            published,
            news: Notify::new(),
            changes: watch::Sender::new(0),
        });
        let list = AgentList {
            shared: shared.clone(),
            look: Instant::now(),
        };
        (Self(shared), list)
    }

    /// Listens to a stream of the agent with this id until it ends, or is not wanted any more. `from`: where it comes from, if
    /// that is known. Answers how many messages there were. Dropped before that, the stream has broken off.
    ///
    /// # Errors
    /// Why it is not listened to any more.
    pub async fn listen<B>(
        &self,
        agent: &UpstreamId,
        dialect: Dialect,
        from: Option<IpAddr>,
        body: B,
    ) -> Result<u64, StreamEnd>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: Into<BoxError>,
    {
        let stream = self.0.registry().open(agent.as_str().into());
        let mut listening = Listening {
            shared: &self.0,
            stream,
            whole: false,
        };
        let result = read(&mut listening, agent, dialect, from, body).await;
        // One that says good-bye has done so; the end of a stream alone is that of an agent of Paddler 1.x.
        listening.whole = result.is_ok() && dialect == Dialect::Paddler1;
        result
    }

    /// Tells when something has changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// How many upstreams agents tell of now.
    pub fn len(&self) -> usize {
        self.0.registry().known.len()
    }

    /// Whether no agent tells of anything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn published(&self) -> &Published {
        &self.0.published
    }

    pub(super) fn clock(&self) -> Clock {
        self.0.clock
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&Registry) -> T) -> T {
        look(&self.0.registry())
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> [usize; 5] {
        self.0.registry().sizes()
    }
}

/// How long a stream may say nothing that nobody goes by any more.
const QUIET: Duration = Duration::from_secs(600);

/// Messages that are heard without a pause.
const AT_ONCE: u64 = 64;

async fn read<B>(
    listening: &mut Listening<'_>,
    agent: &UpstreamId,
    dialect: Dialect,
    from: Option<IpAddr>,
    mut body: B,
) -> Result<u64, StreamEnd>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    let shared = listening.shared;
    let mut frames = Frames::new(shared.options.largest_message);
    let (mut messages, first) = (0, Instant::now() + FIRST);
    let (mut wanted, mut heard_at) = (true, Instant::now());
    loop {
        let frame = tokio::select! {
            biased;
            ended = &mut listening.stream.ended, if wanted => match ended {
                Ok(why) => return Err(StreamEnd::Refused(why)),
                // It has said good-bye.
                Err(_) => {
                    wanted = false;
                    continue;
                }
            },
            frame = body.frame() => frame,
            // A machine that is gone never ends its stream.
            () = sleep_until(heard_at + QUIET), if !wanted => return Err(StreamEnd::Refused(Refused::Silent)),
            () = sleep_until(first), if messages == 0 => return Err(StreamEnd::Refused(Refused::Silent)),
        };
        let Some(frame) = frame else { break };
        heard_at = Instant::now();
        let frame = frame.map_err(|error| StreamEnd::Broken(error.into()))?;
        let Ok(data) = frame.into_data() else { continue };
        frames.push(&data);
        while let Some(message) = frames.next().map_err(StreamEnd::Unreadable)? {
            let length = message.len();
            let said = shared.understand(message, agent, dialect, from);
            let said = said.map_err(|why| StreamEnd::Unreadable(frames.misread(length, why)))?;
            let now = (Instant::now(), shared.clock.now());
            let heard = shared.registry().hear(&mut listening.stream, said, now);
            heard.map_err(StreamEnd::Refused)?;
            shared.changed();
            messages += 1;
            if messages % AT_ONCE == 0 {
                // Whoever sends many at once does not keep others waiting.
                yield_now().await;
            }
        }
    }
    if frames.ends_well() {
        Ok(messages)
    } else {
        Err(StreamEnd::Unreadable(
            frames.unreadable("the stream ends within it".to_owned()),
        ))
    }
}

impl Shared {
    fn understand(
        &self,
        message: &[u8],
        agent: &UpstreamId,
        dialect: Dialect,
        from: Option<IpAddr>,
    ) -> Result<Said, String> {
        let most_names = self.options.most_names;
        let mut said = match dialect {
            Dialect::Own => said::read(message, agent, most_names)?,
            Dialect::Paddler1 => old::read(message)?,
        };
        if let (Word::Report { report, .. }, Some(own_name)) = (&mut said.word, self.published.router()) {
            paddler::close_ring(report, own_name);
        }
        if let Some(hello) = &mut said.hello {
            names_fit(hello.spec.models.as_ref(), most_names)?;
            hello
                .spec
                .host_and_port()
                .map_err(|invalid| invalid.to_string())?;
            if hello.spec.leads_here() && from.is_some_and(|from| !from.to_canonical().is_loopback()) {
                let url = &hello.spec.url;
                return Err(format!(
                    "{url} would lead to the balancer's own machine: tell by which address it reaches the engine (--external-url)"
                ));
            }
            hello.spec.extensions = self.options.extensions.clone();
        }
        Ok(said)
    }
}

#[async_trait]
impl StatusSource for AgentList {
    async fn next(&mut self) -> Option<StatusEvent> {
        loop {
            let now = Instant::now();
            let someone = {
                let mut registry = self.shared.registry();
                if now >= self.look {
                    if registry.look(now) {
                        self.shared
                            .changes
                            .send_modify(|count| *count = count.wrapping_add(1));
                    }
                    self.look = now + LOOK;
                }
                if let Some(event) = registry.next(self.shared.clock.now()) {
                    return Some(event);
                }
                !registry.is_empty()
            };
            tokio::select! {
                () = self.shared.news.notified() => {}
                () = sleep_until(self.look), if someone => {}
            }
        }
    }

    fn name(&self) -> &'static str {
        "agent"
    }
}
