//! What does a config come to, in the terms of those who serve?

use std::sync::Arc;

use super::router::{Config, Limits, ListenerTls, Telemetry, Timeouts as Times};
use crate::forward::{RouterOptions, ServeOptions, Timeouts};
use crate::queue::QueueLimits;
use crate::status::{BoardOptions, PollOptions};
use crate::upstream::http::HttpOptions;

impl Config {
    /// How the router behaves. Clients' keys are for the caller to read: the config says only where they stand.
    pub fn router_options(&self) -> RouterOptions {
        RouterOptions {
            queue: QueueLimits::from_config(&self.queue, self.limits.buffered_bodies),
            timeouts: Timeouts {
                first_byte: self.timeouts.first_byte,
                idle: self.timeouts.idle,
                whole: self.timeouts.whole,
                body_idle: self.limits.body_idle,
                tunnel_idle: self.timeouts.tunnel_idle,
            },
            max_body: self.limits.body,
            max_buffered: self.limits.buffered_bodies,
            retry: self.retry,
            admin: self.admin_paths,
            websockets: self.websockets,
            server_names: self.server_names.clone(),
            own_names_only: self.listen.ip().is_loopback(),
            trusted_peers: self.trusted_peers.clone(),
            forwarding: self.forwarding,
            models: Arc::new(self.models.clone()),
            ..RouterOptions::default()
        }
    }

    /// How connections to upstreams are made.
    pub fn http_options(&self) -> HttpOptions {
        HttpOptions {
            connect_timeout: self.timeouts.connect,
            ..HttpOptions::default()
        }
    }

    /// How statuses are kept.
    pub fn board_options(&self) -> BoardOptions {
        BoardOptions {
            health: self.health,
            ..BoardOptions::default()
        }
    }

    /// How upstreams are polled.
    pub fn poll_options(&self) -> PollOptions {
        PollOptions {
            interval: self.poll.interval,
            timeout: self.poll.timeout,
            concurrency: self.poll.concurrency,
            ..PollOptions::default()
        }
    }

    /// The settings that are looked at once, when serving begins, with their values as text: a change of one waits for a
    /// restart, and all others can come into force while requests go on.
    ///
    /// ```
    /// use paddler_core::config::Config;
    ///
    /// let (mut config, before) = (Config::default(), Config::default());
    /// config.limits.body = 1 << 20;
    /// assert_eq!(config.fixed(), before.fixed());
    /// config.limits.streams = 1;
    /// assert_ne!(config.fixed(), before.fixed());
    /// ```
    pub fn fixed(&self) -> Vec<(&'static str, String)> {
        // Each setting is named, so that a new one has to be judged, too.
        let Limits {
            body: _,
            buffered_bodies: _,
            headers,
            connections,
            streams,
            header_timeout,
            body_idle: _,
        } = &self.limits;
        let Times {
            connect,
            first_byte: _,
            idle: _,
            whole: _,
            client_idle,
            tunnel_idle: _,
        } = &self.timeouts;
        let Telemetry {
            access_log,
            count_tokens,
            statsd,
            otlp,
        } = &self.telemetry;
        vec![
            ("listen", self.listen.to_string()),
            ("management", format!("{:?}", self.management)),
            ("limits.connections", connections.to_string()),
            ("limits.streams", streams.to_string()),
            ("limits.headers", headers.to_string()),
            ("limits.header_timeout", format!("{header_timeout:?}")),
            ("timeouts.connect", format!("{connect:?}")),
            ("timeouts.client_idle", format!("{client_idle:?}")),
            ("tls", self.tls.as_ref().map_or_else(String::new, fixed_of_tls)),
            ("access_log", format!("{access_log:?}")),
            ("count_tokens", format!("{count_tokens:?}")),
            ("statsd", format!("{statsd:?}")),
            ("otlp", format!("{otlp:?}")),
            ("shutdown", format!("{:?}", self.shutdown)),
            ("decisions.log", format!("{:?}", self.decisions.log)),
        ]
    }

    /// How a listener is served. TLS is for the caller to open: the config says only where the files stand.
    pub fn serve_options(&self) -> ServeOptions {
        ServeOptions {
            max_connections: self.limits.connections,
            max_header_bytes: usize::try_from(self.limits.headers).unwrap_or(usize::MAX),
            max_streams: self.limits.streams,
            header_timeout: self.limits.header_timeout,
            client_idle: self.timeouts.client_idle,
            #[cfg(feature = "tls")]
            tls: None,
            grace: self.shutdown.grace,
            ..ServeOptions::default()
        }
    }
}

/// What of TLS is not in its files: those can be read again.
fn fixed_of_tls(tls: &ListenerTls) -> String {
    let ListenerTls {
        certificate: _,
        key: _,
        client_ca: _,
        client_certificates: _,
        handshake_timeout,
        handshakes,
        management,
    } = tls;
    format!("{handshake_timeout:?} {handshakes} {management}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_embeds_and_who_runs_get_the_same_defaults() {
        let config = Config::default();
        let (router, ours) = (config.router_options(), RouterOptions::default());
        assert_eq!(router.queue, ours.queue);
        assert_eq!(router.timeouts, ours.timeouts);
        assert_eq!(
            (router.max_body, router.max_buffered, router.admin),
            (ours.max_body, ours.max_buffered, ours.admin)
        );
        assert_eq!(router.retry, ours.retry);
        assert_eq!(config.board_options().health, BoardOptions::default().health);
        assert_eq!(config.poll_options(), PollOptions::default());
        assert_eq!(config.serve_options(), ServeOptions::default());
        assert_eq!(config.http_options(), HttpOptions::default());
    }
}
