//! Does `paddler health` tell whether the router can serve?

use paddler_engine::{Engine, EngineConfig};

use crate::path;
use crate::support::client::{ask, eventually, get};
use crate::support::program::{Gateway, run};

/// Nobody listens there: it is the port of a service that machines have not had for decades.
const NOBODY: &str = "127.0.0.1:1";

#[tokio::test(flavor = "multi_thread")]
async fn it_is_well_when_the_router_is_ready() {
    let engine = Engine::start(EngineConfig::llamacpp("m").instant())
        .await
        .unwrap();
    let gateway = Gateway::start("gateway", &[engine.url()], &[]);
    eventually("it is ready", async || {
        ask(gateway.management, get("/readyz")).await.status == 200
    })
    .await;
    let management = gateway.management.to_string();
    // By flag, by the variable that the router itself has, and by its file; on every address is on this one, too.
    let everywhere = format!("0.0.0.0:{}", gateway.management.port());
    let config = path("health-file.yaml", &format!("management: {management}\n"));
    for (args, variables) in [
        (&["health", "--management", &management][..], &[][..]),
        (&["health"], &[("PADDLER_MANAGEMENT", everywhere.as_str())]),
        (&["health", "--config", &config], &[]),
    ] {
        let ended = run(args, variables).await;
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!((ended.out.as_str(), ended.log.as_str()), ("ready", ""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_not_well_otherwise_and_says_why() {
    let gateway = Gateway::start("gateway", &[format!("http://{NOBODY}")], &[]);
    let management = gateway.management.to_string();
    let off = path("health-off.yaml", "management: off\n");
    let tls = path(
        "health-tls.yaml",
        "tls: {certificate: c, key: k, management: tls}\n",
    );
    let broken = path("health-broken.yaml", "managment: off\n");
    for (args, says) in [
        (["--management", management.as_str()], "not ready: no upstream"),
        (["--management", NOBODY], "does not answer"),
        (["--management", "8081"], "--management"),
        (["--config", off.as_str()], "management is off"),
        (["--config", &tls], "speaks TLS"),
        (["--config", &broken], "unknown key"),
    ] {
        let ended = run(&[&["health"], &args[..]].concat(), &[]).await;
        assert_eq!(ended.status.code(), Some(1), "{args:?} {ended:?}");
        assert!(ended.log.contains(says), "{args:?} {ended:?}");
    }
}
