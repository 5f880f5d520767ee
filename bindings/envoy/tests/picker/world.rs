//! A picker that serves, over upstreams that are only names.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use paddler_core::Clock;
use paddler_core::forward::{RouterOptions, ServeOptions, Served};
use paddler_core::schedule::{Tree, trees};
use paddler_core::status::{BoardOptions, FixedList, StatusBoard, StatusLoop};
use paddler_core::upstream::http::HttpConnect;
use paddler_core::upstream::{Models, UpstreamSpec};
use paddler_envoy::{EnvoyConnect, Picker, PickerOptions, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tonic::transport::{Channel, Endpoint};

use super::envoy::{HANG, Stream};

pub(crate) struct Setup {
    pub(crate) picker: PickerOptions,
    pub(crate) router: RouterOptions,
    pub(crate) board: BoardOptions,
    pub(crate) tree: Tree,
    pub(crate) serve: ServeOptions,
    pub(crate) polls: HttpConnect,
}

impl Setup {
    pub(crate) fn new() -> Self {
        let mut board = BoardOptions::default();
        board.settle = Duration::from_millis(50);
        let mut serve = ServeOptions::default();
        serve.grace = HANG;
        Self {
            picker: PickerOptions::default(),
            router: RouterOptions::default(),
            board,
            tree: trees::gateway(),
            serve,
            polls: HttpConnect::default(),
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) async fn start(self, upstreams: impl IntoIterator<Item = UpstreamSpec>) -> World {
        let clock = Clock::new();
        let upstreams: Vec<_> = upstreams.into_iter().collect();
        let many = upstreams.len();
        let connect = Arc::new(EnvoyConnect::new(Arc::new(self.polls)));
        let statuses = StatusLoop::start(
            StatusBoard::with_options(self.tree, self.board),
            vec![Box::new(FixedList::new(upstreams))],
            connect,
            None,
            clock,
        );
        let published = statuses.published();
        eventually("all have joined", || published.load().len() == many).await;
        let picker = Picker::new(published, clock, self.router, self.picker);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, mut stopped) = watch::channel(false);
        let (cut, mut was_cut) = watch::channel(false);
        let served = tokio::spawn(serve(
            listener,
            picker.clone(),
            self.serve,
            async move { drop(stopped.wait_for(|stop| *stop).await) },
            async move { drop(was_cut.wait_for(|cut| *cut).await) },
        ));
        let channel = channel(addr).await;
        World {
            addr,
            channel,
            picker,
            stop,
            cut,
            served,
            _statuses: statuses,
        }
    }
}

pub(crate) async fn channel(addr: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
    endpoint.connect().await.unwrap()
}

pub(crate) struct World {
    pub(crate) addr: SocketAddr,
    pub(crate) channel: Channel,
    pub(crate) picker: Picker,
    stop: watch::Sender<bool>,
    cut: watch::Sender<bool>,
    served: JoinHandle<std::io::Result<Served>>,
    _statuses: StatusLoop,
}

impl World {
    pub(crate) async fn open(&self) -> Stream {
        Stream::open(self.channel.clone()).await
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        let page = self.picker.router().metrics_page() + &self.picker.metrics_page();
        assert!(page.contains(&format!("# TYPE {name} ")), "no metric {name}");
        let samples = page.lines().filter(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        samples
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// What is reserved at this upstream.
    pub(crate) fn open_at(&self, id: &str) -> u32 {
        let snapshot = self.picker.router().published().load_full();
        snapshot.ledger().own_load(snapshot.index(id).unwrap()).weight
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
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// How serving ended.
    pub(crate) async fn served(self) -> Served {
        let served = timeout(HANG, self.served).await.expect("it goes on serving");
        served.unwrap().unwrap()
    }
}

pub(crate) async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waits = async {
        while !holds() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(HANG, waits)
        .await
        .unwrap_or_else(|_| panic!("never: {what}"));
}

pub(crate) fn spec(id: &str, url: &str) -> UpstreamSpec {
    UpstreamSpec::new(id, url).unwrap().models(Models::Any)
}

/// Three upstreams at 10.0.0.1 to 10.0.0.3, port 8000.
pub(crate) fn abc() -> [UpstreamSpec; 3] {
    [("a", 1), ("b", 2), ("c", 3)].map(|(id, number)| spec(id, &format!("http://10.0.0.{number}:8000")))
}

pub(crate) fn one() -> [UpstreamSpec; 1] {
    [spec("a", "http://10.0.0.1:8000")]
}
