//! A router and three engines in a simulated network.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use paddler_core::Clock;
use paddler_core::forward::{Accept, Body, Connection, Router, RouterOptions, ServeOptions, serve};
use paddler_core::queue::QueueLimits;
use paddler_core::schedule::trees;
use paddler_core::status::{BoardOptions, FixedList, PollOptions, StatusBoard, StatusLoop};
use paddler_core::upstream::UpstreamSpec;
use paddler_core::upstream::http::{Dial, HttpConnect, HttpOptions, Io};
use turmoil::net::{TcpListener, TcpStream};
use turmoil::{Builder, Sim};

use super::engine;

pub(crate) const ENGINES: [&str; 3] = ["engine-a", "engine-b", "engine-c"];
pub(crate) const PORT: u16 = 80;

/// How long a request takes an engine.
pub(crate) const WORK: Duration = Duration::from_millis(50);

/// The longest that a first byte may take.
pub(crate) const FIRST_BYTE: Duration = Duration::from_secs(5);

/// The longest pause between two polls of an engine that cannot be asked.
pub(crate) const BACKOFF: Duration = Duration::from_secs(2);

/// Within this time a partition must be known: the pause between two polls, and the longest that one may take.
pub(crate) const NOTICED: Duration = Duration::from_secs(4);

/// Connections of the simulated network, for the router's requests and polls.
#[derive(Debug)]
struct SimDial;

#[async_trait]
impl Dial for SimDial {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(vec![(turmoil::lookup(host), port).into()])
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<Box<dyn Io>> {
        Ok(Box::new(TcpStream::connect(address).await?))
    }
}

/// A listener of the simulated network.
struct SimListener(TcpListener);

impl Accept for SimListener {
    async fn accept(&mut self) -> io::Result<(Connection, SocketAddr)> {
        let (stream, peer) = self.0.accept().await?;
        Ok((Connection::new(stream), peer))
    }
}

pub(crate) async fn listen() -> io::Result<TcpListener> {
    TcpListener::bind((IpAddr::from(Ipv4Addr::UNSPECIFIED), PORT)).await
}

/// When (in simulated milliseconds) which engine began which request.
pub(crate) type Begun = (u64, &'static str, String);

/// What engines note.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<Begun>>>);

impl Notes {
    pub(crate) fn add(&self, engine: &'static str, id: &str) {
        let at = turmoil::sim_elapsed().unwrap_or_default().as_millis() as u64;
        self.0.lock().unwrap().push((at, engine, id.to_owned()));
    }

    pub(crate) fn all(&self) -> Vec<Begun> {
        self.0.lock().unwrap().clone()
    }

    /// How many requests this engine began from then to then.
    pub(crate) fn began(&self, engine: &str, from: Duration, to: Duration) -> usize {
        let times = from.as_millis() as u64..to.as_millis() as u64;
        let all = self.all();
        all.iter()
            .filter(|(at, name, _)| *name == engine && times.contains(at))
            .count()
    }

    /// How often an engine began this request.
    pub(crate) fn times(&self, id: &str) -> usize {
        self.all().iter().filter(|(_, _, known)| known == id).count()
    }
}

/// The network, with its engines and the router.
pub(crate) fn world(seed: u64, notes: &Notes) -> Sim<'static> {
    let mut sim = Builder::new()
        .rng_seed(seed)
        .simulation_duration(Duration::from_secs(300))
        .tick_duration(Duration::from_millis(5))
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(10))
        .tcp_capacity(1024)
        .build();
    for name in ENGINES {
        let notes = notes.clone();
        sim.host(name, move || engine::run(name, notes.clone()));
    }
    sim.host("router", move || router(seed));
    sim
}

async fn router(seed: u64) -> turmoil::Result {
    let clock = Clock::new();
    let spec = |name: &str| {
        UpstreamSpec::new(name, format!("http://{name}:{PORT}")).map(|spec| spec.max_in_flight(4))
    };
    let specs = ENGINES
        .iter()
        .map(|name| spec(name))
        .collect::<Result<Vec<_>, _>>()?;
    let mut poll = PollOptions::default();
    poll.max_backoff = BACKOFF;
    let mut board = BoardOptions::default();
    board.settle = Duration::from_secs(2);
    let statuses = StatusLoop::start(
        StatusBoard::with_options(trees::gateway(), board),
        vec![Box::new(FixedList::new(specs))],
        Arc::new(HttpConnect::new(HttpOptions::default()).dial(Arc::new(SimDial))),
        Some(poll),
        clock,
    );
    let mut options = RouterOptions::default();
    options.queue = QueueLimits::new(1_000, 1 << 30, Duration::from_secs(10));
    options.timeouts.first_byte = FIRST_BYTE;
    options.seed = Some(seed);
    let router = Router::new(statuses.published(), clock, options);
    let listener = SimListener(listen().await?);
    let service = service_fn(move |request| answer(router.clone(), request));
    let never = std::future::pending;
    serve(listener, service, ServeOptions::default(), never(), never()).await?;
    Ok(())
}

/// The router, and its figures on a path of their own.
async fn answer(
    router: Router,
    request: Request<Incoming>,
) -> Result<Response<Body>, std::convert::Infallible> {
    if request.uri().path() == "/figures" {
        return Ok(Response::new(Body::from(router.metrics_page())));
    }
    Ok(router.handle(request).await)
}

/// Runs until then, in simulated time.
pub(crate) fn run_until(sim: &mut Sim<'_>, time: Duration) {
    while sim.elapsed() < time {
        assert!(!sim.step().unwrap(), "the clients have ended before {time:?}");
    }
}
