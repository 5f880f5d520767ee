//! How late does an event of a stream come through the router, and how late without?
//!
//! Events leave the engine at an even pace. One is as late as it comes after the pace of its own stream, counted from the event that
//! came earliest by it; so what all of a stream's events wait for is not in it, and what the engine and the client are late by is in both.

use std::net::SocketAddr;
use std::time::Duration;

use paddler_benches::harness::Failure;
use paddler_benches::harness::costless::{Engine, MARK, MODEL, Pace};
use paddler_benches::harness::figures::per_mille;
use paddler_benches::harness::streams::{chat, request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::arguments::Arguments;
use super::goals;
use super::program::Place;
use super::table::Row;

/// Streams, and the events of each in a second.
const LOADS: [(usize, u32); 2] = [(200, 50), (1_000, 10)];

/// How often each is measured, in turn with and without the router.
const ROUNDS: usize = 2;

/// So many of a thousand events are not later than what is told.
const PER_MILLE: usize = 999;

/// What the router adds to how late the latest of a thousand events is.
pub(crate) async fn events(arguments: &Arguments, place: Place<'_>) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (streams, a_second) in LOADS {
        let every = Duration::from_secs(1) / a_second;
        let engine = Engine::start(Pace {
            every,
            events: 1 << 20,
        })
        .await?;
        let limits = format!("limits: {{connections: {}}}\n", streams + 100);
        let gateway = place.gateway(&[("engine", engine.address)], &limits).await?;
        let mut late = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (late, address) in late.iter_mut().zip([engine.address, gateway.address]) {
                let time = Duration::from_secs_f64(arguments.seconds / 2.0);
                late.extend(all(address, streams, every, time).await?);
            }
        }
        let [direct, routed] = late.map(|mut late| {
            late.sort_by(f64::total_cmp);
            per_mille(&late, PER_MILLE)
        });
        let what = format!(
            "events of {streams} streams with {a_second} a second each: how late p99.9 is, beyond direct ({direct:.1} ms)"
        );
        rows.push(Row::new(what, goals::LATE, routed - direct));
    }
    Ok(rows)
}

/// How late the events of all streams are, in milliseconds.
async fn all(
    address: SocketAddr,
    streams: usize,
    every: Duration,
    time: Duration,
) -> Result<Vec<f64>, Failure> {
    let (began, mut readers) = (Instant::now(), JoinSet::new());
    for number in 0..streams {
        // Not all at once, as no clients are.
        let first = began + Duration::from_secs(1).mul_f64(number as f64 / streams as f64);
        readers.spawn(async move {
            sleep_until(first).await;
            let come = read(address, began + Duration::from_secs(1) + time).await?;
            Ok::<_, Failure>(lateness(&come, every.as_secs_f64() * 1e3))
        });
    }
    let mut late = Vec::new();
    while let Some(read) = readers.join_next().await {
        late.extend(read??);
    }
    Ok(late)
}

/// When each event has come, in milliseconds.
async fn read(address: SocketAddr, until: Instant) -> Result<Vec<f64>, Failure> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (began, mut bytes, mut come) = (Instant::now(), vec![0; 16 << 10], Vec::new());
    stream
        .write_all(request(address, &chat(MODEL, 1 << 20), "").as_bytes())
        .await?;
    while let Ok(read) = timeout_at(until, stream.read(&mut bytes)).await {
        let read = read?;
        if read == 0 {
            return Err("a stream ends".into());
        }
        let now = began.elapsed().as_secs_f64() * 1e3;
        let events = bytes[..read].iter().filter(|byte| **byte == MARK).count();
        come.extend(std::iter::repeat_n(now, events));
    }
    Ok(come)
}

/// How much later than by the pace each has come, which is that of the earliest.
fn lateness(come: &[f64], every: f64) -> Vec<f64> {
    let behind: Vec<f64> = come
        .iter()
        .enumerate()
        .map(|(number, at)| at - number as f64 * every)
        .collect();
    let earliest = behind.iter().copied().fold(f64::INFINITY, f64::min);
    behind.into_iter().map(|at| at - earliest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_as_late_as_it_comes_after_the_pace_of_its_stream() {
        assert_eq!(lateness(&[7.0, 26.0, 49.0, 66.0], 20.0), [1.0, 0.0, 3.0, 0.0]);
        assert_eq!(lateness(&[], 20.0), [0.0; 0]);
    }
}
