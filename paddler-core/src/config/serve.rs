//! What does a config come to, in the terms of those who serve?

use super::router::Config;
use crate::forward::{RouterOptions, ServeOptions, Timeouts};
use crate::queue::QueueLimits;
use crate::status::PollOptions;
use crate::upstream::http::HttpOptions;

impl Config {
    /// How the router behaves. Clients' keys are for the caller to read: the config says only where they stand.
    pub fn router_options(&self) -> RouterOptions {
        let mut options = RouterOptions::default();
        options.queue = QueueLimits::new(
            self.queue.max_requests,
            self.limits.buffered_bodies,
            self.queue.max_wait,
        );
        options.timeouts = Timeouts {
            first_byte: self.timeouts.first_byte,
            idle: self.timeouts.idle,
            body_idle: self.limits.body_idle,
        };
        options.max_body = self.limits.body;
        options.max_buffered = self.limits.buffered_bodies;
        options.admin = self.admin_paths;
        options
    }

    /// How connections to upstreams are made.
    pub fn http_options(&self) -> HttpOptions {
        let mut options = HttpOptions::default();
        options.connect_timeout = self.timeouts.connect;
        options
    }

    /// How upstreams are polled.
    pub fn poll_options(&self) -> PollOptions {
        let mut options = PollOptions::default();
        options.interval = self.poll.interval;
        options.timeout = self.poll.timeout;
        options.concurrency = self.poll.concurrency;
        options
    }

    /// How a listener is served.
    pub fn serve_options(&self) -> ServeOptions {
        let mut options = ServeOptions::default();
        options.max_connections = self.limits.connections;
        options.max_header_bytes = usize::try_from(self.limits.headers).unwrap_or(usize::MAX);
        options.header_timeout = self.limits.header_timeout;
        options.client_idle = self.timeouts.client_idle;
        options.grace = self.shutdown.grace;
        options
    }
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
        assert_eq!(config.poll_options(), PollOptions::default());
        assert_eq!(config.serve_options(), ServeOptions::default());
        assert_eq!(config.http_options(), HttpOptions::default());
    }
}
