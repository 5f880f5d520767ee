//! What does one engine that is killed under load cost?
//!
//! Only what had begun on it may fail, each of it visibly; and once a connection to it has failed, no new request goes there.

use std::path::Path;
use std::time::Duration;

use paddler_benches::harness::Failure;
use paddler_benches::harness::draw::Draw;
use paddler_benches::harness::gateway::GatewayProcess;
use paddler_benches::harness::programs::Programs;
use paddler_engine::{Happened, JournalLine};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::trouble::Fleet;
use super::{Arguments, conclude, load, start};

/// So many requests may be on their way there when the first of them fails to connect.
const IN_THE_AIR: f64 = 3.0;

/// Kills one of three, and tells what that cost.
pub(crate) async fn trial(
    arguments: &Arguments,
    programs: &Programs,
    folder: &Path,
) -> Result<bool, Failure> {
    const KILLED: usize = 1;
    let (engines, mut gateway) = start(3, programs, folder).await?;
    let (began, time) = (Instant::now(), Duration::from_secs(arguments.seconds));
    let (end, draw) = (began + time, Draw::new(arguments.seed));
    let fleet = Fleet::new(engines, began);
    let (notes, outcomes) = mpsc::unbounded_channel();
    let kill = async {
        sleep(time / 3).await;
        let before = resent(&gateway).await?;
        let mut engine = fleet.engines[KILLED].lock().await;
        fleet.set_able(KILLED, false);
        engine.kill();
        Ok::<_, Failure>((before, open(&engine.journal()?)))
    };
    let load = load::run(gateway.address, began, end, arguments.rate, draw.part(1), notes);
    let (killed, ()) = tokio::join!(kill, load);
    let (before, open) = killed?;
    let more = resent(&gateway).await? - before - open as f64;
    println!(
        "killed with {open} requests open; {} others were sent there, and then elsewhere",
        more.max(0.0)
    );
    let sound = conclude(arguments, &mut gateway, &fleet, outcomes, 0).await?;
    Ok(sound && more <= IN_THE_AIR)
}

/// How many requests were sent again so far.
async fn resent(gateway: &GatewayProcess) -> Result<f64, Failure> {
    gateway.metric("paddler_retries_total").await
}

/// How many requests an engine had not ended.
fn open(lines: &[JournalLine]) -> usize {
    let count = |wanted: fn(&Happened) -> bool| lines.iter().filter(|line| wanted(&line.happened)).count();
    let began = count(|happened| matches!(happened, Happened::Began { .. }));
    began - count(|happened| matches!(happened, Happened::Ended { .. })).min(began)
}
