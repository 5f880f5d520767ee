//! How does the program serve, from start to stop?

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use paddler_core::Clock;
use paddler_core::agent::{Agents, AgentsOptions};
use paddler_core::config::{Config, DecisionRules, Mode};
use paddler_core::forward::{Keys, Router, ServeOptions, Served, Tls, hear_out, serve};
use paddler_core::manage::{Decisions, Feed, Tape, watch};
use paddler_core::observe::export::Exports;
use paddler_core::schedule::trees;
use paddler_core::status::{
    DnsList, Health, MemberList, Members, Report, StatusBoard, StatusLoop, StatusSource,
};
use paddler_core::upstream::http::Tcp;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{self, mpsc};
use tokio::time::sleep;

use crate::args::Serve;
use crate::control::{Control, Doors};
use crate::front::{Desk, Front};
use crate::reload::{Lists, Origin, Reloads};
use crate::secrets::{Secrets, Specs};
use crate::settings::Loaded;
use crate::stop::{Hangups, Stops};
use crate::{Failure, api, cors, settings};

/// How often names that stand for several upstreams are looked up: a replica that a resolver has is to be used soon, and one
/// that has gone is found out by its polls before.
const NAMES_EVERY: Duration = Duration::from_secs(10);

/// Serves by arguments until told to stop.
pub(crate) async fn run(mode: Mode, args: Serve, front: Front) -> Result<(), Failure> {
    let (stops, hangups) = (Stops::listen()?, Hangups::listen()?);
    let args = Arc::new(args);
    let origin = Origin { mode, args };
    let loaded = origin.load().await.map_err(|faulty| faulty.why)?;
    Gateway::start(loaded, &front)
        .await?
        .serve(stops, Some((origin, hangups)))
        .await
}

/// A router behind its listeners.
pub(crate) struct Gateway {
    desk: Desk,
    // Dropped, the statuses would stand still.
    statuses: StatusLoop,
    exports: Exports,
    clock: Clock,
    listener: TcpListener,
    management: Option<TcpListener>,
    doors: (Option<Keys>, Doors),
    agents: Agents,
    tls: Option<Tls>,
    lists: Lists,
    added: Members,
    specs: Specs,
    /// Those that are watched.
    files: Vec<PathBuf>,
    keys: Option<Keys>,
    decisions: Arc<Decisions>,
    config: Config,
}

impl Gateway {
    /// Opens the listeners and begins to follow the upstreams.
    pub(crate) async fn start(loaded: Loaded, front: &Front) -> Result<Self, Failure> {
        let Loaded {
            mut config,
            secrets,
            files,
        } = loaded;
        let Secrets {
            specs,
            keys,
            management: management_keys,
            agents: agent_keys,
            tls,
        } = secrets;
        front.fit(&config);
        let listener = bind(config.listen, "--listen").await?;
        let decisions = Arc::new(decisions(&config.decisions)?);
        let mut exports = Exports::open(&config.telemetry)?;
        let options = settings::router_options(&config, keys.clone(), (&decisions, &exports));
        let management = match config.management {
            Some(address) => Some(bind(address, "--management").await?),
            None => None,
        };
        let clock = Clock::new();
        let (members, list) = MemberList::new(specs.single.iter().cloned());
        let (listed, of_file) = MemberList::new(specs.file.iter().cloned());
        let (added, of_api) = MemberList::new([]);
        let (dns, behind_names) = DnsList::new(specs.dns.iter().cloned(), NAMES_EVERY, Arc::new(Tcp));
        // The board has it from here on.
        let tree = std::mem::replace(&mut config.tree, trees::gateway());
        let board = StatusBoard::with_options(tree, config.board_options());
        let (agents, of_agents) = Agents::new(AgentsOptions::default(), board.published(), clock);
        // Whose word counts first stands first: what people say before what machines say of themselves.
        let sources: Vec<Box<dyn StatusSource>> = vec![
            Box::new(list.named("config")),
            Box::new(of_file.named("file")),
            Box::new(behind_names),
            Box::new(of_api.named(api::OWN)),
            Box::new(of_agents),
        ];
        let statuses = StatusLoop::start(
            board,
            sources,
            front.connect(&config),
            Some(config.poll_options()),
            clock,
        );
        let desk = front.desk(&config, statuses.published(), clock, options);
        exports.follow(desk.router());
        Ok(Self {
            desk,
            statuses,
            exports,
            clock,
            listener,
            management,
            doors: (management_keys, Doors::new(&config, agent_keys)),
            agents,
            tls,
            lists: Lists {
                single: members,
                file: listed,
                dns,
            },
            added,
            specs,
            files,
            keys,
            decisions,
            config,
        })
    }

    /// Where requests come in.
    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        Ok(self.listener.local_addr()?)
    }

    /// Where health and metrics are told, if anywhere.
    pub(crate) fn management(&self) -> Result<Option<SocketAddr>, Failure> {
        let address = self.management.as_ref().map(TcpListener::local_addr);
        Ok(address.transpose()?)
    }

    /// Done once every upstream says that it is ready.
    pub(crate) async fn all_ready(&self) {
        let published = self.statuses.published();
        loop {
            let snapshot = published.load();
            let ready = |report: &Report| report.health == Some(Health::Ready);
            if snapshot.len() == self.specs.single.len()
                && snapshot
                    .iter()
                    .all(|(_, entry)| entry.report().is_some_and(ready))
            {
                return;
            }
            drop(snapshot);
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Serves until told to stop, and then until every answer has ended, the grace is over, or it is told again.
    /// `origin`: where the config came from, to be read there again.
    pub(crate) async fn serve(self, stops: Stops, origin: Option<(Origin, Hangups)>) -> Result<(), Failure> {
        let Self {
            desk,
            config,
            listener,
            ..
        } = self;
        let (ask, requests) = mpsc::channel(16);
        let control = Arc::new(Control::new(
            desk.clone(),
            self.statuses,
            self.clock,
            self.doors,
            (self.added, self.agents, ask),
            (config.to_json(), self.decisions, Feed::new(epoch())),
            self.exports,
        ));
        let address = listener.local_addr()?;
        desk.say_where(address, config.tls.as_ref());
        let (leave, left) = sync::watch::channel(false);
        let mut managed = None;
        if let Some(listener) = self.management {
            let address = listener.local_addr()?;
            let mut options = config.serve_options();
            // Each agent holds one, and what clients may have is for clients.
            options.max_connections = MANAGEMENT_CONNECTIONS;
            options.tls = self
                .tls
                .clone()
                .filter(|_| config.tls.as_ref().is_some_and(|tls| tls.management));
            let url = url(address, options.tls.is_some());
            tracing::info!(url, %address, "listening for health, metrics, the management API and its page");
            if !address.ip().is_loopback() && control.management_keys().is_none() {
                tracing::warn!(
                    "without management_key_file, whoever reaches {address} reads what goes on; agents of other machines need \
                     --agent-key-file, or --agents open"
                );
            }
            tokio::spawn(watch(
                control.feed.clone(),
                desk.router().published().clone(),
                self.clock,
            ));
            managed = Some(tokio::spawn(manage(listener, control.clone(), options, left)));
        }
        // Who is asked and listens no more says so.
        if let Some((origin, hangups)) = origin {
            let before = (self.specs, self.keys, self.tls.clone());
            let config = (&config, self.files);
            let reloads = Reloads::new(control.clone(), origin, self.lists, config, before);
            tokio::spawn(reloads.run(hangups, requests));
        } else {
            drop(requests);
        }
        let settle = config.shutdown.settle;
        let stop = told_to_stop(&stops, desk.router().clone(), control.feed.clone(), settle);
        let mut options = config.serve_options();
        options.tls = self.tls;
        let served = desk.serve(listener, options, stop, stops.reach(2)).await?;
        if let Some(managed) = managed {
            leave.send_replace(true);
            let managed = async { managed.await.unwrap_or(()) };
            tokio::select! {
                () = managed => {}
                () = stops.reach(2) => {}
            }
        }
        // What has ended by now is to be in the log.
        control.exports.flush().await;
        if let Some(tape) = control.decisions.tape() {
            tape.flush();
        }
        drop(control);
        if let Served::Cut(connections) = served {
            return Err(
                format!("stopped before every answer had ended: {connections} connections cut").into(),
            );
        }
        Ok(())
    }
}

/// What keeps the last decisions, and writes them down if it is to.
fn decisions(rules: &DecisionRules) -> Result<Decisions, Failure> {
    let decisions = Decisions::new(rules.clone());
    let Some(log) = &rules.log else {
        return Ok(decisions);
    };
    let file = log.display();
    let tape = Tape::open(log, rules.log_size)
        .map_err(|error| format!("{file} (decisions.log) cannot be written: {error}"))?;
    tracing::info!(%file, "decisions are written down: models, tenants and sessions are in it");
    Ok(decisions.taped(tape))
}

/// Another number for each process.
fn epoch() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0u8)
}

/// Done when nobody is to be let in any more; `router` says before that it is not ready.
async fn told_to_stop(stops: &Stops, router: Router, feed: Feed, settle: Duration) {
    stops.reach(1).await;
    tracing::info!("stopping: answers under way go on; a second signal ends them");
    router.stop();
    feed.tell("stopping", &serde_json::json!({}));
    feed.close();
    tokio::select! {
        () = sleep(settle) => {}
        () = stops.reach(2) => {}
    }
}

/// What clients write to reach a listener, but for the name in its certificate.
pub(crate) fn url(address: SocketAddr, over_tls: bool) -> String {
    let scheme = if over_tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// The most connections of the management listener: as many as there may be agents, and some for whoever looks.
const MANAGEMENT_CONNECTIONS: usize = 4096 + 512;

/// How many connections may wait to be accepted. Beyond it the system answers for us, and resets who believed it.
const BACKLOG: u32 = 4096;

fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // What was served before, and ends late, does not keep us from it. On Windows it would let another in beside us.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    let hint = |error| format!("{address} cannot be listened on: {error}; choose another with {flag}").into();
    listener(address).map_err(hint)
}

/// How long who follows something here may take to hear that it ends with the program.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves until it is `left`, and then until what goes on has ended, which is not waited for long.
async fn manage(
    listener: TcpListener,
    control: Arc<Control>,
    options: ServeOptions,
    left: sync::watch::Receiver<bool>,
) {
    let reach = api::Reach {
        local: listener
            .local_addr()
            .is_ok_and(|address| address.ip().is_loopback()),
        tls: options.tls.is_some(),
    };
    let service = service_fn(move |request: Request<Incoming>| {
        let control = control.clone();
        let answer = hear_out(request, move |request| cors::answer(control, request, reach));
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let leaving = |mut left: sync::watch::Receiver<bool>| async move {
        left.wait_for(|left| *left).await.ok();
    };
    let (stop, cut) = (leaving(left.clone()), leaving(left));
    let cut = async {
        cut.await;
        sleep(FAREWELL).await;
    };
    if let Err(error) = serve(listener, service, options, stop, cut).await {
        tracing::error!(%error, "nobody listens for health, metrics and the management API any more");
    }
}
