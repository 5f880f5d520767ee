//! A router behind its own server, in front of whatever a test needs.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use paddler_core::Clock;
use paddler_core::forward::{Router, RouterOptions, ServeOptions, Served, serve};
use paddler_core::queue::QueueLimits;
use paddler_core::schedule::{Tree, trees};
use paddler_core::status::{BoardOptions, FixedList, PollOptions, StatusBoard, StatusLoop};
use paddler_core::upstream::http::{HttpConnect, HttpOptions};
use paddler_core::upstream::{Models, UpstreamSpec};
use paddler_engine::{Engine, EngineConfig};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::{HANG, eventually};

/// How a router is to be.
pub(crate) struct Setup {
    pub(crate) options: RouterOptions,
    pub(crate) serve: ServeOptions,
    pub(crate) http: HttpOptions,
    pub(crate) tree: Tree,
    pub(crate) poll: Option<PollOptions>,
    pub(crate) board: BoardOptions,
    pub(crate) listen: &'static str,
}

impl Setup {
    /// Nobody is polled: what upstreams are is what their specs say.
    pub(crate) fn new() -> Self {
        let mut board = BoardOptions::default();
        board.settle = Duration::from_millis(300);
        Self {
            options: RouterOptions::default(),
            serve: ServeOptions::default(),
            http: HttpOptions::default(),
            tree: trees::gateway(),
            poll: None,
            board,
            listen: "127.0.0.1:0",
        }
    }

    /// Everybody is polled, often.
    pub(crate) fn polled() -> Self {
        let mut poll = PollOptions::default();
        poll.interval = Duration::from_millis(30);
        let mut setup = Self::new();
        setup.board.settle = HANG;
        setup.poll = Some(poll);
        setup
    }

    pub(crate) fn queue(mut self, requests: usize, wait: Duration) -> Self {
        self.options.queue = QueueLimits::new(requests, 1 << 30, wait);
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) async fn start(self, upstreams: impl IntoIterator<Item = UpstreamSpec>) -> World {
        let clock = Clock::new();
        let upstreams: Vec<_> = upstreams.into_iter().collect();
        let ids: Vec<_> = upstreams.iter().map(|spec| spec.id.clone()).collect();
        let (polled, many) = (self.poll.is_some(), ids.len());
        let statuses = StatusLoop::start(
            StatusBoard::with_options(self.tree, self.board),
            vec![Box::new(FixedList::new(upstreams))],
            Arc::new(HttpConnect::new(self.http)),
            self.poll,
            clock,
        );
        let router = Router::new(statuses.published(), clock, self.options);
        let listener = TcpListener::bind(self.listen).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, mut stopped) = watch::channel(false);
        let (cut, mut was_cut) = watch::channel(false);
        let served = tokio::spawn(serve(
            listener,
            router.clone(),
            self.serve,
            async move { drop(stopped.wait_for(|stop| *stop).await) },
            async move { drop(was_cut.wait_for(|cut| *cut).await) },
        ));
        let published = statuses.published();
        eventually("all have joined", || published.load().len() == many).await;
        if polled {
            let heard = |id: &paddler_core::upstream::UpstreamId| {
                published
                    .load()
                    .find(id.as_str())
                    .is_some_and(|entry| entry.report().is_some() || entry.failures() > 0)
            };
            eventually("all were asked", || ids.iter().all(heard)).await;
        }
        World {
            addr,
            router,
            statuses,
            stop,
            cut,
            served,
        }
    }
}

/// A router that serves.
pub(crate) struct World {
    pub(crate) addr: SocketAddr,
    pub(crate) router: Router,
    pub(crate) statuses: StatusLoop,
    stop: watch::Sender<bool>,
    cut: watch::Sender<bool>,
    served: JoinHandle<io::Result<Served>>,
}

impl World {
    /// The sum of a metric over its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.router.metrics_page();
        assert!(page.contains(&format!("# TYPE {name} ")), "no metric {name}");
        let samples = page.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        samples
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.metric("paddler_waiting_requests") as usize
    }

    pub(crate) fn open_weight(&self) -> u32 {
        self.metric("paddler_upstream_open_weight") as u32
    }

    pub(crate) fn settling(&self) -> u64 {
        self.router.published().load().ledger().settling_weight()
    }

    /// Waits until every counter is back at zero.
    pub(crate) async fn quiet(&self) {
        let counters = [
            "paddler_waiting_requests",
            "paddler_in_flight_requests",
            "paddler_buffered_bytes",
            "paddler_upstream_open_weight",
        ];
        for counter in counters {
            eventually(counter, || self.metric(counter) == 0.0).await;
        }
        assert_eq!(self.settling(), 0);
    }

    pub(crate) fn stop(&self) {
        self.router.stop();
        self.stop.send_replace(true);
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// How serving ended.
    pub(crate) async fn served(self) -> Served {
        timeout(HANG, self.served)
            .await
            .expect("it goes on serving")
            .unwrap()
            .unwrap()
    }
}

pub(crate) async fn engine(config: EngineConfig) -> Engine {
    Engine::start(config).await.unwrap()
}

/// A llama.cpp server that takes no time and says the same thing each time.
pub(crate) fn quick() -> EngineConfig {
    EngineConfig::llamacpp("tiny").instant().fixed_ids(true)
}

/// One whose answers never end by themselves while a test runs.
pub(crate) fn slow() -> EngineConfig {
    EngineConfig::llamacpp("tiny")
        .prefill_tokens_per_second(f64::INFINITY)
        .decode_tokens_per_second(0.001)
        .fixed_ids(true)
}

pub(crate) fn spec(id: &str, url: impl Into<String>) -> UpstreamSpec {
    UpstreamSpec::new(id, url).unwrap().models(Models::Any)
}

/// An upstream for this engine, which may get as many requests as it has slots.
pub(crate) fn of(id: &str, engine: &Engine) -> UpstreamSpec {
    spec(id, engine.url()).max_in_flight(u32::try_from(engine.config().slots).unwrap())
}

/// An address at which nobody listens.
pub(crate) async fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}
