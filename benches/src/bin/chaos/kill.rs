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

/// So many requests may find nobody there: the first, and those that are on their way when it does.
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
        let before = not_sent(&gateway).await?;
        let mut engine = fleet.engines[KILLED].lock().await;
        fleet.set_able(KILLED, false);
        engine.kill();
        Ok::<_, Failure>((before, open(&engine.journal()?)))
    };
    let load = load::run(gateway.address, began, end, arguments.rate, draw.part(1), notes);
    let (killed, ()) = tokio::join!(kill, load);
    let (before, open) = killed?;
    let more = not_sent(&gateway).await? - before;
    println!("killed with {open} requests open; {more} others found nobody there, and went elsewhere");
    let sound = conclude(arguments, &mut gateway, &fleet, outcomes, 0).await?;
    Ok(sound && more <= IN_THE_AIR)
}

/// How many requests could not be sent where they were to go, so far.
async fn not_sent(gateway: &GatewayProcess) -> Result<f64, Failure> {
    let (_, page) = gateway.manage(http::Method::GET, "/metrics").await?;
    let series = "paddler_retries_total{reason=\"not_sent\"} ";
    let value = page.lines().find_map(|line| line.strip_prefix(series));
    Ok(value.map_or(Ok(0.0), str::parse)?)
}

/// How many requests an engine had not ended.
fn open(lines: &[JournalLine]) -> usize {
    let count = |wanted: fn(&Happened) -> bool| lines.iter().filter(|line| wanted(&line.happened)).count();
    let began = count(|happened| matches!(happened, Happened::Began { .. }));
    began - count(|happened| matches!(happened, Happened::Ended { .. })).min(began)
}
