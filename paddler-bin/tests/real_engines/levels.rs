//! How do requests come to the engines: from a gateway at once, or through all levels?

use std::fs;
use std::ops::Deref;
use std::path::Path;

use serde_json::Value;

use crate::servers::{Llama, Servers, heard_from};
use crate::support::client::{Client, Reply, ask, eventually, get, post, streamed};
use crate::support::program::{Gateway, Program};

/// What is between a client and the engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// One gateway.
    Straight,
    /// A gateway, below it a balancer for each engine, and beside each engine an agent that tells its balancer.
    AllLevels,
}

/// Makes a test for each way of each of these.
macro_rules! each_way {
    ($($test:ident),+ $(,)?) => {$(
        mod $test {
            use crate::levels::Way;

            #[tokio::test(flavor = "multi_thread")]
            async fn straight() {
                super::$test(Way::Straight).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn through_all_levels() {
                super::$test(Way::AllLevels).await;
            }
        }
    )+};
}
pub(crate) use each_way;

/// A gateway and what is below it.
#[derive(Debug)]
pub(crate) struct Front {
    gateway: Gateway,
    _fleets: Vec<Fleet>,
}

impl Deref for Front {
    type Target = Gateway;

    fn deref(&self) -> &Gateway {
        &self.gateway
    }
}

impl Front {
    /// A gateway in front of these engines, each with its id and URL. The engines need not be there.
    pub(crate) fn of(way: Way, engines: &[(&str, String)], more: &[&str]) -> Self {
        let fleets: Vec<_> = match way {
            Way::Straight => Vec::new(),
            Way::AllLevels => engines.iter().map(|(id, url)| Fleet::of(id, url)).collect(),
        };
        let upstreams: Vec<_> = match way {
            Way::Straight => engines.iter().map(|(id, url)| format!("{id}={url}")).collect(),
            Way::AllLevels => fleets.iter().map(Fleet::upstream).collect(),
        };
        Self {
            gateway: Gateway::start("gateway", &upstreams, more),
            _fleets: fleets,
        }
    }

    /// The same, once the gateway knows that all are ready.
    pub(crate) async fn ready(way: Way, engines: &[(&str, String)], more: &[&str]) -> Self {
        let front = Self::of(way, engines, more);
        for (id, _) in engines {
            is_ready(&front, id).await;
        }
        front
    }
}

impl Servers {
    /// A gateway in front of all of them that knows what they serve.
    pub(crate) async fn gateway(&self, way: Way, more: &[&str]) -> Front {
        const IDS: [&str; 4] = ["a-1", "a-2", "b-1", "e-1"];
        let [a1, a2, b, e] = self.all().map(Llama::url);
        let engines = [(IDS[0], a1), (IDS[1], a2), (IDS[2], b), (IDS[3], e)];
        let front = Front::of(way, &engines, more);
        heard_from(&front, &IDS).await;
        front
    }
}

/// An engine's agent, and the balancer that it tells. The engine has one name everywhere.
#[derive(Debug)]
pub(crate) struct Fleet {
    id: String,
    engine: String,
    pub(crate) balancer: Gateway,
    pub(crate) agent: Program,
}

impl Fleet {
    fn of(id: &str, url: &str) -> Self {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fleet-{id}.yaml"));
        // Who waits is to wait in the gateway, which may know of another place once an engine has died.
        let words = "agents: {access: auto}\nqueue: {max_wait: 5s, max_wait_starting: 5s}\n";
        fs::write(&file, words).unwrap();
        let config = ["--config", file.to_str().unwrap()];
        let balancer = Gateway::start("balancer", &[], &config);
        Self {
            agent: agent(id, url, &balancer),
            id: id.to_owned(),
            engine: url.to_owned(),
            balancer,
        }
    }

    /// The same for a server, once it is known to be ready.
    pub(crate) async fn ready(id: &str, server: &Llama) -> Self {
        let fleet = Self::of(id, &server.url());
        is_ready(&fleet.balancer, id).await;
        fleet
    }

    /// What stands after `--upstream` for it.
    pub(crate) fn upstream(&self) -> String {
        format!("{}=paddler://{}", self.id, self.balancer.address)
    }

    /// Ends the agent as a crash does, and waits until the balancer has its engine no more.
    pub(crate) async fn lose_agent(&self) {
        self.agent.signal("KILL");
        eventually("the balancer knows", async || {
            upstream(&self.balancer, &self.id).await["error"].is_string()
        })
        .await;
    }

    /// Starts another agent in its place.
    pub(crate) fn start_agent(&mut self) {
        self.agent = agent(&self.id, &self.engine, &self.balancer);
    }
}

fn agent(id: &str, engine: &str, balancer: &Gateway) -> Program {
    let args = [
        "agent".to_owned(),
        format!("--id={id}"),
        format!("--engine-url={engine}"),
        format!("--balancer=http://{}", balancer.management),
        "--poll-interval=100ms".to_owned(),
    ];
    Program::start(&args, &[])
}

/// Waits until a router knows that an upstream of its own can serve.
pub(crate) async fn is_ready(router: &Gateway, id: &str) {
    eventually(&format!("{id} is ready"), async || can_serve(router, id).await).await;
}

/// Whether a router knows that an upstream of its own can serve.
pub(crate) async fn can_serve(router: &Gateway, id: &str) -> bool {
    let told = upstream(router, id).await;
    told["health"] == "ready" && told["able"] == true
}

/// What a router knows of an upstream of its own; an error where there is none.
pub(crate) async fn upstream(router: &Gateway, id: &str) -> Value {
    ask(router.management, get(&format!("/api/v1/upstreams/{id}")))
        .await
        .json()
}

/// A stream that has begun.
pub(crate) async fn begun(gateway: &Gateway, body: Value) -> (Client, Reply) {
    let mut client = Client::to(gateway.address);
    let mut reply = client.send(post("/v1/chat/completions", &streamed(body))).await;
    assert_eq!(reply.status, 200);
    reply.more().await.unwrap().unwrap();
    (client, reply)
}
