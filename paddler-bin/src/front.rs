//! Who asks where requests go?
//!
//! Clients themselves, over HTTP; or, with the feature `envoy`, Envoy in front of them. All else is the same.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use paddler_core::Clock;
#[cfg(feature = "envoy")]
use paddler_core::config::ClientCertificates;
use paddler_core::config::{Config, ListenerTls};
use paddler_core::forward::{Router, RouterOptions, ServeOptions, Served, serve};
use paddler_core::status::Published;
use paddler_core::upstream::Connect;
use paddler_core::upstream::http::HttpConnect;
#[cfg(feature = "envoy")]
use paddler_envoy::{EnvoyConnect, Picker, PickerOptions};
use tokio::net::TcpListener;

use crate::open_files;
use crate::run::url;

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) enum Front {
    Clients,
    #[cfg(feature = "envoy")]
    Envoy(PickerOptions),
}

/// What serves those who ask.
#[derive(Debug, Clone)]
pub(crate) enum Desk {
    Clients(Router),
    #[cfg(feature = "envoy")]
    Envoy(Picker),
}

impl Front {
    /// How upstreams are reached.
    pub(crate) fn connect(&self, config: &Config) -> Arc<dyn Connect> {
        let http = Arc::new(HttpConnect::new(config.http_options()));
        match self {
            Self::Clients => http,
            #[cfg(feature = "envoy")]
            Self::Envoy(_) => Arc::new(EnvoyConnect::new(http)),
        }
    }

    /// Makes room for as many connections as may be. Envoy opens few, whatever its clients do.
    pub(crate) fn fit(&self, config: &Config) {
        match self {
            Self::Clients => open_files::fit(&config.limits),
            #[cfg(feature = "envoy")]
            Self::Envoy(_) => {}
        }
    }

    /// What serves those who ask.
    #[cfg_attr(
        not(feature = "envoy"),
        expect(unused_variables, reason = "clients are held to it by their listener")
    )]
    pub(crate) fn desk(
        &self,
        config: &Config,
        published: Published,
        clock: Clock,
        options: RouterOptions,
    ) -> Desk {
        match self {
            Self::Clients => Desk::Clients(Router::new(published, clock, options)),
            #[cfg(feature = "envoy")]
            Self::Envoy(picker) => {
                let mut picker = picker.clone();
                picker.max_streams = config.limits.connections;
                Desk::Envoy(Picker::new(published, clock, options, picker))
            }
        }
    }
}

impl Desk {
    pub(crate) fn router(&self) -> &Router {
        match self {
            Self::Clients(router) => router,
            #[cfg(feature = "envoy")]
            Self::Envoy(picker) => picker.router(),
        }
    }

    /// Puts other options in force, for the requests that come from now on.
    pub(crate) fn reconfigure(&self, options: RouterOptions) {
        match self {
            Self::Clients(router) => router.reconfigure(options),
            #[cfg(feature = "envoy")]
            Self::Envoy(picker) => picker.reconfigure(options),
        }
    }

    /// All figures, as a page for Prometheus.
    pub(crate) fn metrics_of(&self, families: &[String]) -> String {
        match self {
            Self::Clients(router) => router.metrics_of(families),
            #[cfg(feature = "envoy")]
            Self::Envoy(picker) => picker.router().metrics_of(families) + &picker.metrics_page(),
        }
    }

    /// Says in the log where those who ask come in, and whether that is as open as it must not be.
    pub(crate) fn say_where(&self, address: SocketAddr, tls: Option<&ListenerTls>) {
        match self {
            Self::Clients(_) => {
                tracing::info!(url = url(address, tls.is_some()), %address, "listening for requests");
            }
            #[cfg(feature = "envoy")]
            Self::Envoy(_) => {
                let asks_who = tls.is_some_and(|tls| {
                    tls.client_ca.is_some() && tls.client_certificates == ClientCertificates::Required
                });
                if !address.ip().is_loopback() && !asks_who {
                    tracing::warn!(
                        "whoever reaches {address} may ask the picker, and is believed as Envoy is: let only Envoy get there, or \
                         ask for its certificate (`tls` with `client_ca`)"
                    );
                }
                tracing::info!(over_tls = tls.is_some(), %address, "listening for requests: Envoy asks here, by gRPC ext_proc");
            }
        }
    }

    /// Serves until `stop`, and then until all has ended, the grace is over, or `cut`.
    pub(crate) async fn serve(
        self,
        listener: TcpListener,
        options: ServeOptions,
        stop: impl Future<Output = ()> + Send,
        cut: impl Future<Output = ()> + Send,
    ) -> io::Result<Served> {
        match self {
            Self::Clients(router) => serve(listener, router, options, stop, cut).await,
            #[cfg(feature = "envoy")]
            Self::Envoy(picker) => paddler_envoy::serve(listener, picker, options, stop, cut).await,
        }
    }
}
