//! What is measured: how many agents, what they say, and what is asked meanwhile?

use std::fmt;
use std::path::Path;
use std::time::Duration;

use http::Method;
use paddler_benches::harness::Failure;
use paddler_benches::harness::engines::EngineProcess;
use paddler_benches::harness::gateway::GatewayProcess;
use paddler_benches::harness::programs::Programs;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::MODEL;
use super::speakers::{self, News};
use super::traffic::{self, DOCUMENTS, Times};

/// How long all agents may take to be there.
const START: Duration = Duration::from_secs(60);

/// After that, until connections are open and all have spoken once more.
const SETTLE: Duration = Duration::from_secs(2);

/// What is asked meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// So many chats a second.
    Chats(u32),
    /// The same, and all that the router tells.
    All(u32),
}

/// One case.
#[derive(Debug)]
pub(crate) struct Case {
    agents: usize,
    news: News,
    asked: Asked,
}

/// What was seen of it in one round.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// CPU time in the program and in the system, in milliseconds a second.
    pub(crate) cpu: [f64; 2],
    pub(crate) memory: u64,
    pub(crate) panics: usize,
    pub(crate) chats: Times,
    pub(crate) documents: [Times; DOCUMENTS.len()],
    pub(crate) events: Times,
}

impl Seen {
    pub(crate) fn errors(&self) -> usize {
        let documents: usize = self.documents.iter().map(|times| times.errors).sum();
        self.chats.errors + documents + self.events.errors
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let news = match self.news {
            News::None => "idle",
            News::EachSecond => "changing",
        };
        write!(f, "{} agents, {news}, {}", self.agents, self.asked)
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Chats(rate) => write!(f, "{rate}/s"),
            Self::All(rate) => write!(f, "{rate}/s, and each document 4/s"),
        }
    }
}

impl Case {
    /// All cases with at most so many agents and so many requests a second.
    pub(crate) fn all(most: usize, rate: u32) -> Vec<Self> {
        let case = |(agents, news, asked)| Self { agents, news, asked };
        [
            (0, News::None, Asked::Nothing),
            (most / 5, News::None, Asked::Nothing),
            (most, News::None, Asked::Nothing),
            (most, News::EachSecond, Asked::Nothing),
            (0, News::None, Asked::Chats(rate)),
            (most, News::EachSecond, Asked::Chats(rate)),
            (most, News::EachSecond, Asked::All(rate)),
        ]
        .map(case)
        .into()
    }

    /// Its part of a row.
    pub(crate) fn columns(&self) -> String {
        let news = match (self.agents, self.news) {
            (0, _) => "",
            (_, News::None) => "each second that all is as it was",
            (_, News::EachSecond) => "each second something new",
        };
        format!("{} | {news} | {}", self.agents, self.asked)
    }

    /// Measures it for so long, with a router of its own.
    pub(crate) async fn run(
        &self,
        programs: &Programs,
        folder: &Path,
        engine: &EngineProcess,
        seconds: u64,
    ) -> Result<Seen, Failure> {
        let settings = "agents: {access: auto}\n";
        // One more upstream, which is polled.
        let upstreams = [(engine.id.as_str(), engine.address)];
        let mut gateway = GatewayProcess::start(&programs.paddler, folder, &upstreams, settings).await?;
        let place = (engine.address.port(), MODEL);
        let mut agents = speakers::start(gateway.management(), self.agents, self.news, place);
        let there = async {
            while known(&gateway).await? < self.agents {
                sleep(Duration::from_millis(100)).await;
            }
            Ok::<_, Failure>(())
        };
        timeout(START, there)
            .await
            .map_err(|_| "not all agents are there")??;
        // Connections are opened before anything is measured.
        self.ask(&gateway, SETTLE).await?;
        let time = Duration::from_secs(seconds);
        let (began, before) = (Instant::now(), gateway.program().cpu_parts());
        let mut seen = self.ask(&gateway, time).await?;
        let (taken, after) = (began.elapsed(), gateway.program().cpu_parts());
        seen.cpu = [0, 1].map(|part| (after[part] - before[part]).as_secs_f64() * 1e3 / taken.as_secs_f64());
        if let Some(ended) = agents.try_join_next() {
            return Err(format!("an agent is listened to no more: {ended:?}").into());
        }
        (seen.memory, seen.panics) = (gateway.memory(), gateway.panics());
        Ok(seen)
    }

    async fn ask(&self, gateway: &GatewayProcess, time: Duration) -> Result<Seen, Failure> {
        let mut seen = Seen::default();
        let (address, management) = (gateway.address, gateway.management());
        match self.asked {
            Asked::Nothing => sleep(time).await,
            Asked::Chats(rate) => seen.chats = traffic::chats(address, MODEL, rate, time).await,
            Asked::All(rate) => {
                let (chats, documents, events) = tokio::join!(
                    traffic::chats(address, MODEL, rate, time),
                    traffic::documents(management, time),
                    traffic::events(management, "gpu-0", time),
                );
                (seen.chats, seen.documents, seen.events) = (chats, documents?, events?);
            }
        }
        Ok(seen)
    }
}

/// How many agents are known.
async fn known(gateway: &GatewayProcess) -> Result<usize, Failure> {
    let (_, document) = gateway.manage(Method::GET, "/api/v1/agents").await?;
    let document: Value = serde_json::from_str(&document)?;
    Ok(document["agents"].as_array().map_or(0, Vec::len))
}
