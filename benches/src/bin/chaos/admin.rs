//! What does the one who runs the router do meanwhile?
//!
//! He takes an engine out of the config and puts it back (two reloads), and drains two engines and undrains them.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use paddler_benches::harness::Failure;
use paddler_benches::harness::draw::Draw;
use paddler_benches::harness::gateway::GatewayProcess;
use tokio::time::sleep;

use super::judge::began;
use super::trouble::Fleet;

/// How long after the answer to a drain a request may still arrive that had been given its place before.
const TRANSIT: Duration = Duration::from_millis(300);

/// How much was done, and requests that came to an engine which was to get none.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) reloads: u32,
    pub(crate) drains: u32,
    pub(crate) strays: u64,
}

/// Two reloads and two drains, within this time.
pub(crate) async fn run(
    fleet: &Fleet,
    gateway: &GatewayProcess,
    upstreams: &[(String, SocketAddr)],
    time: Duration,
    mut draw: Draw,
) -> Result<Done, Failure> {
    let mut done = Done::default();
    let step = time / 6;
    sleep(step / 2).await;
    reload(fleet, gateway, upstreams, step, &mut draw, &mut done).await?;
    for _ in 0..2 {
        sleep(step / 2).await;
        drain(fleet, gateway, step, &mut draw, &mut done).await?;
    }
    Ok(done)
}

/// Takes one out of the config, and puts it back.
async fn reload(
    fleet: &Fleet,
    gateway: &GatewayProcess,
    upstreams: &[(String, SocketAddr)],
    lasts: Duration,
    draw: &mut Draw,
    done: &mut Done,
) -> Result<(), Failure> {
    let (index, engine) = loop {
        match fleet.take(draw) {
            Some(taken) => break taken,
            None => sleep(Duration::from_millis(50)).await,
        }
    };
    fleet.set_able(index, false);
    let all: Vec<_> = upstreams
        .iter()
        .map(|(id, address)| (id.as_str(), *address))
        .collect();
    let without: Vec<_> = all.iter().copied().filter(|(id, _)| *id != engine.id).collect();
    gateway.reload(&without)?;
    sleep(Duration::from_millis(500)).await;
    let before = began(&engine.journal()?);
    sleep(lasts).await;
    done.strays += began(&engine.journal()?) - before;
    gateway.reload(&all)?;
    done.reloads += 2;
    sleep(Duration::from_millis(1_500)).await;
    fleet.set_able(index, true);
    Ok(())
}

async fn drain(
    fleet: &Fleet,
    gateway: &GatewayProcess,
    lasts: Duration,
    draw: &mut Draw,
    done: &mut Done,
) -> Result<(), Failure> {
    let (index, engine) = loop {
        match fleet.take(draw) {
            Some(taken) => break taken,
            None => sleep(Duration::from_millis(50)).await,
        }
    };
    let tell = async |word: &str| -> Result<(), Failure> {
        let path = format!("/api/v1/upstreams/{}/{word}", engine.id);
        match gateway.manage(Method::POST, &path).await? {
            (status, _) if status.is_success() => Ok(()),
            (StatusCode::NOT_FOUND, text) => Err(format!("{path} is not there: {text}").into()),
            (status, text) => Err(format!("{path}: {status} {text}").into()),
        }
    };
    fleet.set_able(index, false);
    tell("drain").await?;
    sleep(TRANSIT).await;
    let before = began(&engine.journal()?);
    sleep(lasts).await;
    done.strays += began(&engine.journal()?) - before;
    tell("undrain").await?;
    done.drains += 1;
    fleet.set_able(index, true);
    Ok(())
}
