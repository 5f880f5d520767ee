//! Which flags of Paddler 1.x are understood, and what do they say here?
//!
//! They are in the long help alone. Where a default or an answer is another one now, the README beside the manifest says so; a test holds that
//! table and these flags together.

use std::net::{SocketAddr, ToSocketAddrs as _};

use clap::Parser;

use super::Serve;

pub(crate) const HEADING: &str = "Flags of Paddler 1.x";

/// Those of `paddler agent`.
#[derive(Debug, Default, Parser)]
#[command(next_help_heading = HEADING)]
pub(crate) struct OfAgent {
    /// Says --engine-url, as host:port.
    #[arg(
        long,
        value_name = "ADDRESS",
        hide_short_help = true,
        conflicts_with = "engine_url"
    )]
    pub(crate) local_llamacpp_addr: Option<String>,
    /// Says --external-url, as host:port.
    #[arg(
        long,
        value_name = "ADDRESS",
        hide_short_help = true,
        conflicts_with = "external_url"
    )]
    pub(crate) external_llamacpp_addr: Option<String>,
    /// The key that --engine-api-key-file holds. Whoever lists the processes of this machine sees it.
    #[arg(
        long,
        value_name = "KEY",
        hide_short_help = true,
        conflicts_with = "engine_api_key_file"
    )]
    pub(crate) llamacpp_api_key: Option<String>,
    /// Says --balancer, as host:port.
    #[arg(
        long,
        value_name = "ADDRESS",
        hide_short_help = true,
        conflicts_with = "balancer"
    )]
    pub(crate) management_addr: Option<String>,
    /// Says --poll-interval; a number alone is in milliseconds.
    #[arg(
        long,
        value_name = "MILLISECONDS",
        hide_short_help = true,
        conflicts_with = "poll_interval"
    )]
    pub(crate) monitoring_interval: Option<String>,
}

/// Those of `paddler balancer`.
#[derive(Debug, Default, Parser)]
#[command(next_help_heading = HEADING)]
pub(crate) struct OfBalancer {
    /// Says --management, as host:port.
    #[arg(
        long,
        value_name = "ADDRESS",
        hide_short_help = true,
        conflicts_with = "management"
    )]
    pub(crate) management_addr: Option<String>,
    /// Says --listen, as host:port.
    #[arg(
        long,
        value_name = "ADDRESS",
        hide_short_help = true,
        conflicts_with = "listen"
    )]
    pub(crate) reverseproxy_addr: Option<String>,
    /// Says --max-wait; a number alone is in milliseconds.
    #[arg(
        long,
        value_name = "MILLISECONDS",
        hide_short_help = true,
        conflicts_with = "max_wait"
    )]
    pub(crate) buffered_request_timeout: Option<String>,
    /// Says --max-requests.
    #[arg(
        long,
        value_name = "NUMBER",
        hide_short_help = true,
        conflicts_with = "max_requests"
    )]
    pub(crate) max_buffered_requests: Option<u32>,
    /// Changes nothing: upstreams are asked by their own name.
    #[arg(long, hide_short_help = true)]
    pub(crate) rewrite_host_header: bool,
    /// Says --open-admin-paths, which opens more than /slots.
    #[arg(long, hide_short_help = true)]
    pub(crate) slots_endpoint_enable: bool,
    /// Changes nothing: the management listener has /metrics.
    #[arg(long, hide_short_help = true)]
    pub(crate) metrics_endpoint_enable: bool,
    /// Changes nothing.
    #[arg(long, hide_short_help = true)]
    pub(crate) management_dashboard_enable: bool,
    /// Says --management-origin. Repeat it for each.
    #[arg(long, value_name = "ORIGIN", hide_short_help = true)]
    pub(crate) management_cors_allowed_host: Vec<String>,
    /// Route by model, as `paddler gateway` does.
    #[arg(long, hide_short_help = true)]
    pub(crate) check_model: bool,
}

impl OfBalancer {
    /// What they say, in the flags of now.
    ///
    /// # Errors
    /// An address that is none.
    pub(crate) fn put_into(self, serve: &mut Serve) -> Result<(), String> {
        if let Some(address) = self.management_addr {
            serve.management = Some(address_of(&address, "--management-addr")?.to_string());
            // Agents came there, and upstreams in no other way.
            serve.expects_agents = true;
        }
        if let Some(address) = self.reverseproxy_addr {
            serve.listen = Some(address_of(&address, "--reverseproxy-addr")?.to_string());
        }
        if let Some(time) = self.buffered_request_timeout {
            serve.max_wait = Some(time_of(&time));
        }
        if self.max_buffered_requests.is_some() {
            serve.max_requests = self.max_buffered_requests;
        }
        serve.open_admin_paths |= self.slots_endpoint_enable;
        serve.management_origin.extend(self.management_cors_allowed_host);
        Ok(())
    }
}

/// A host and a port. A name is looked up once, as 1.x did, and IPv4 comes first.
pub(crate) fn address_of(text: &str, flag: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = text
        .to_socket_addrs()
        .map_err(|error| format!("{flag}: {text} is no address with a port: {error}"))?;
    let mut found: Vec<_> = found.collect();
    found.sort_by_key(SocketAddr::is_ipv6);
    let none = || format!("{flag}: {text} has no address");
    found.first().copied().ok_or_else(none)
}

/// A time; a number alone is in milliseconds.
pub(crate) fn time_of(text: &str) -> String {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        format!("{text}ms")
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_milliseconds_and_names_addresses() {
        assert_eq!(
            (
                time_of("250").as_str(),
                time_of("2s").as_str(),
                time_of("").as_str()
            ),
            ("250ms", "2s", "")
        );
        assert_eq!(address_of("127.0.0.1:80", "").unwrap().port(), 80);
        assert!(address_of("localhost:80", "").unwrap().is_ipv4());
        assert!(
            address_of("localhost", "--management-addr")
                .unwrap_err()
                .starts_with("--management-addr: localhost")
        );
    }
}
