//! What does it look like, on a machine without any engine?

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};

use paddler_core::config::{Config, Mode, UpstreamConfig};
use paddler_core::upstream::UpstreamSpec;
use paddler_engine::{Engine, EngineConfig};

use crate::Failure;
use crate::run::Gateway;
use crate::stop::Stops;

/// Starts two simulated engines with a model each and a gateway in front of them, and prints a request to try.
pub(crate) async fn demo() -> Result<(), Failure> {
    let engines = [
        Engine::start(EngineConfig::llamacpp("small").seed(1)).await?,
        Engine::start(EngineConfig::vllm("large").seed(2)).await?,
    ];
    let free_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut config = Config::default_for(Mode::Gateway);
    config.listen = free_port;
    config.management = None;
    for (id, engine) in ["engine-1", "engine-2"].into_iter().zip(&engines) {
        let spec = UpstreamSpec::new(id, engine.url())?;
        config.upstreams.push(UpstreamConfig {
            spec,
            api_key_file: None,
        });
    }
    let stops = Stops::listen()?;
    let gateway = Gateway::start(config).await?;
    let address = gateway.address()?;
    writeln!(
        io::stdout(),
        "A gateway in front of two simulated engines, with the models \"small\" and \"large\". Try:\n\
         curl -sS http://{address}/v1/chat/completions -H 'Content-Type: application/json' \
         -d '{{\"model\":\"small\",\"max_tokens\":16,\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n\
         Ctrl-C ends it."
    )?;
    gateway.serve(stops).await
}
