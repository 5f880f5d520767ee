//! How does the program serve, from start to stop?

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use paddler_core::Clock;
use paddler_core::config::{Config, Mode};
use paddler_core::forward::{Router, Served, serve};
use paddler_core::status::{FixedList, Health, Report, StatusBoard, StatusLoop};
use paddler_core::upstream::http::HttpConnect;
use tokio::net::TcpListener;
use tokio::time::sleep;

use crate::args::Serve;
use crate::settings::Secrets;
use crate::stop::Stops;
use crate::{Failure, management, settings};

/// Serves by arguments until told to stop.
pub(crate) async fn run(mode: Mode, args: Serve) -> Result<(), Failure> {
    let config = settings::config(mode, &args)?;
    let stops = Stops::listen()?;
    Gateway::start(config).await?.serve(stops).await
}

/// A router behind its listeners.
pub(crate) struct Gateway {
    router: Router,
    // Dropped, the statuses would stand still.
    statuses: StatusLoop,
    listener: TcpListener,
    management: Option<TcpListener>,
    upstreams: usize,
    config: Running,
}

/// What of the config is needed while it serves.
struct Running {
    serve: paddler_core::forward::ServeOptions,
    settle: Duration,
}

impl Gateway {
    /// Opens the listeners and begins to follow the upstreams.
    pub(crate) async fn start(config: Config) -> Result<Self, Failure> {
        let Secrets { specs, keys } = settings::secrets(&config)?;
        let mut options = config.router_options();
        let open = keys.is_none() && !config.listen.ip().is_loopback();
        if let Some(keys) = keys {
            options.keys = Some(Arc::new(keys));
        }
        let listener = bind(config.listen, "--listen").await?;
        if open {
            tracing::warn!(
                "without --api-key-file, whoever reaches {} may send requests",
                config.listen
            );
        }
        let management = match config.management {
            Some(address) => Some(bind(address, "--management").await?),
            None => None,
        };
        let running = Running {
            serve: config.serve_options(),
            settle: config.shutdown.settle,
        };
        let (connect, poll) = (HttpConnect::new(config.http_options()), config.poll_options());
        let upstreams = specs.len();
        let clock = Clock::new();
        let statuses = StatusLoop::start(
            StatusBoard::new(config.tree),
            vec![Box::new(FixedList::new(specs))],
            Arc::new(connect),
            Some(poll),
            clock,
        );
        let router = Router::new(statuses.published(), clock, options);
        Ok(Self {
            router,
            statuses,
            listener,
            management,
            upstreams,
            config: running,
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
            if snapshot.len() == self.upstreams
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
    pub(crate) async fn serve(self, stops: Stops) -> Result<(), Failure> {
        let Self {
            router,
            statuses,
            listener,
            management,
            upstreams: _,
            config,
        } = self;
        tracing::info!(address = %listener.local_addr()?, "requests come in");
        if let Some(listener) = management {
            tracing::info!(address = %listener.local_addr()?, "health and metrics are told");
            tokio::spawn(manage(listener, router.clone(), config.serve.clone()));
        }
        let stop = async {
            stops.reach(1).await;
            tracing::info!("stopping: answers under way go on; a second signal ends them");
            router.stop();
            tokio::select! {
                () = sleep(config.settle) => {}
                () = stops.reach(2) => {}
            }
        };
        let served = serve(listener, router.clone(), config.serve, stop, stops.reach(2)).await?;
        drop(statuses);
        if let Served::Cut(connections) = served {
            return Err(
                format!("stopped before every answer had ended: {connections} connections cut").into(),
            );
        }
        Ok(())
    }
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    let hint = |error| format!("{address} cannot be listened on: {error}; choose another with {flag}").into();
    TcpListener::bind(address).await.map_err(hint)
}

async fn manage(listener: TcpListener, router: Router, options: paddler_core::forward::ServeOptions) {
    let service = service_fn(move |request| management::answer(router.clone(), request));
    // It ends with the program.
    let never = std::future::pending;
    if let Err(error) = serve(listener, service, options, never(), never()).await {
        tracing::error!(%error, "health and metrics are told no more");
    }
}
