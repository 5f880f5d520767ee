//! What can be said to `paddler endpoint-picker`?

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::Parser;
use clap::builder::BoolishValueParser;
use paddler_core::queue::Priority;
use paddler_envoy::{GatewayHeaders, PickerOptions};

use super::Serve;

pub(super) const EXAMPLES: &str = "Flags come before the environment, and both before the file.

Examples:
  paddler endpoint-picker --upstream http://10.0.0.3:8000 --upstream http://10.0.0.4:8000
  paddler endpoint-picker --config paddler.yaml --fallbacks 0";

/// Where Envoy asks: the port that the Gateway API Inference Extension's picker has, and apart from the gateway's.
const PICKER_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9002);

/// Flags come before the environment, and both before the file.
#[derive(Debug, Parser)]
#[command(mut_arg("listen", |arg| arg.help(format!("Where Envoy asks, by gRPC [default: {PICKER_LISTEN}]"))))]
pub(crate) struct EndpointPicker {
    #[command(flatten)]
    pub(crate) serve: Serve,
    /// How many upstreams are named besides the one that is picked, for Envoy's own retries: 0 to 3. 0 for a cluster of type
    /// ORIGINAL_DST, which takes one address alone [default: 3].
    #[arg(long, value_name = "NUMBER", env = "PADDLER_FALLBACKS", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) fallbacks: Option<u8>,
    /// What an objective of the Gateway API is worth: high, standard, sheddable or a whole number. Repeat it for each.
    #[arg(long, value_name = "NAME=PRIORITY", env = "PADDLER_OBJECTIVE", value_delimiter = ',', value_parser = objective)]
    pub(crate) objective: Vec<(String, i32)>,
    /// Do not believe the gateway's headers on objective, fairness id and model.
    #[arg(long, env = "PADDLER_IGNORE_GATEWAY_HEADERS", value_parser = BoolishValueParser::new())]
    pub(crate) ignore_gateway_headers: bool,
}

fn objective(text: &str) -> Result<(String, i32), String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, word) = parts.ok_or("write NAME=PRIORITY")?;
    let priority = Priority::read(word);
    let priority = priority.ok_or("a priority is high, standard, sheddable or a whole number")?;
    Ok((name.to_owned(), priority))
}

impl EndpointPicker {
    /// What it says of the picker, and what of the router.
    pub(crate) fn split(self) -> (PickerOptions, Serve) {
        let mut options = PickerOptions::default();
        options.fallbacks = self.fallbacks.map_or(options.fallbacks, usize::from);
        options.objectives = self.objective.into_iter().collect();
        if self.ignore_gateway_headers {
            options.gateway_headers = GatewayHeaders::Ignored;
        }
        let mut serve = self.serve;
        serve.default_listen = Some(PICKER_LISTEN);
        (options, serve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_names_with_priorities() {
        assert_eq!(objective("chat=high"), Ok(("chat".to_owned(), 1)));
        assert_eq!(objective("a=b=-7").ok(), None);
        assert_eq!(objective("batch=-7"), Ok(("batch".to_owned(), -7)));
        for wrong in ["chat", "=high", "chat=urgent"] {
            assert!(objective(wrong).is_err(), "{wrong}");
        }
    }
}
