//! What goes wrong, where and when?
//!
//! Two kinds of trouble run beside each other. *Breaking* trouble takes requests that were sent and answers none of them:
//! one engine at a time, since a request that was lost so is sent once more, and no oftener. *Other* trouble is about how
//! engines answer, refuse or tell of themselves. So an able engine is there at every moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use paddler_benches::harness::Failure;
use paddler_benches::harness::draw::Draw;
use paddler_benches::harness::engines::EngineProcess;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard};
use tokio::time::{Instant, sleep};

/// How long after its recovery an engine is not counted on: the router has to hear of it.
const RECOVERY: Duration = Duration::from_millis(1_500);

/// All engines, and when each was able to serve.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) engines: Vec<AsyncMutex<EngineProcess>>,
    began: Instant,
    /// For each engine, from when on (in milliseconds) it was able or not.
    able: Mutex<Vec<Vec<(u64, bool)>>>,
}

impl Fleet {
    pub(crate) fn new(engines: Vec<EngineProcess>, began: Instant) -> Arc<Self> {
        Arc::new(Self {
            able: Mutex::new(vec![vec![(0, true)]; engines.len()]),
            engines: engines.into_iter().map(AsyncMutex::new).collect(),
            began,
        })
    }

    pub(crate) fn set_able(&self, engine: usize, able: bool) {
        let at = self.began.elapsed().as_millis() as u64;
        let mut all = self.able.lock().unwrap_or_else(PoisonError::into_inner);
        all[engine].push((at, able));
    }

    /// Whether this engine, or any (`None`), was able from then to then.
    pub(crate) fn was_able(&self, engine: Option<usize>, from: u64, to: u64) -> bool {
        let all = self.able.lock().unwrap_or_else(PoisonError::into_inner);
        match engine {
            Some(engine) => throughout(&all[engine], from, to),
            None => all.iter().any(|turns| throughout(turns, from, to)),
        }
    }

    /// Some engine that nobody else has a hand on.
    pub(crate) fn take(&self, draw: &mut Draw) -> Option<(usize, MutexGuard<'_, EngineProcess>)> {
        let first = draw.below(self.engines.len());
        (0..self.engines.len())
            .map(|step| (first + step) % self.engines.len())
            .find_map(|index| Some((index, self.engines[index].try_lock().ok()?)))
    }
}

/// Whether it was able from then to then, by its turns.
fn throughout(turns: &[(u64, bool)], from: u64, to: u64) -> bool {
    let at_first = turns.iter().rev().find(|(at, _)| *at <= from);
    let between = turns.iter().filter(|(at, _)| (from..=to).contains(at));
    at_first.is_some_and(|(_, able)| *able) && between.into_iter().all(|(_, able)| *able)
}

/// Trouble in which requests that were sent get no answer.
fn breaking(draw: &mut Draw) -> Trouble {
    match draw.below(8) {
        0 | 1 => Trouble::Kill,
        2 => Trouble::Stop,
        3 => Trouble::Rules(json!({ "fault": "reset" })),
        4 => Trouble::Rules(json!({ "fault": "close" })),
        5 => Trouble::Rules(json!({ "fault": "hang-up", "for_ms": 1_000 })),
        6 => Trouble::Rules(json!({ "fault": "refuse", "for_ms": 1_000 })),
        _ => Trouble::Rules(json!({ "fault": "crash-on-disconnect" })),
    }
}

enum Trouble {
    Kill,
    /// It takes connections and says nothing.
    Stop,
    Rules(Value),
}

/// How engines can answer, refuse and tell of themselves otherwise than they should.
fn other(draw: &mut Draw) -> Value {
    let bytes = draw.below(2_000);
    let all = [
        json!({ "fault": "reset-after", "bytes": 1 + bytes }),
        json!({ "fault": "eof-after", "bytes": 1 + bytes }),
        json!({ "fault": "stall-after", "bytes": 1 + bytes, "times": 3 }),
        json!({ "fault": "error-event-after", "bytes": bytes }),
        json!({ "fault": "pieces", "bytes": 1 + draw.below(9) }),
        json!({ "fault": "slow-head", "every_ms": 1 }),
        json!({ "fault": "loading" }),
        json!({ "fault": "status", "code": 429, "retry_after": 1 }),
        json!({ "fault": "status", "code": 503 }),
        json!({ "fault": "status", "code": 500 }),
        json!({ "fault": "status", "code": 400 }),
        json!({ "fault": "html-error", "code": 403 }),
        json!({ "fault": "text-error", "code": 503 }),
        json!({ "fault": "html" }),
        json!({ "fault": "body-null" }),
        json!({ "fault": "stall", "times": 2 }),
        json!({ "fault": "raw", "text": "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab" }),
        json!({ "fault": "informational", "code": 103 }),
        json!({ "fault": "duplicate-headers" }),
        json!({ "fault": "many-headers", "count": 60 }),
        json!({ "fault": "no-content-type" }),
        json!({ "fault": "label-gzip" }),
        json!({ "fault": "gzip" }),
        json!({ "fault": "chunked" }),
        json!({ "fault": "trailers" }),
        json!({ "fault": "close-after-answer" }),
        json!({ "fault": "padding", "bytes": 300_000 }),
        json!([{ "fault": "unicode" }, { "fault": "pieces", "bytes": 1 + draw.below(5) }]),
        json!({ "fault": "quote-done" }),
        json!({ "fault": "no-done" }),
        json!({ "fault": "hang-on-disconnect" }),
        json!({ "fault": "wrong-length", "by": -5 }),
        json!({ "fault": "wrong-length", "by": 5 }),
        json!({ "fault": "slots-off" }),
        json!({ "fault": "slow-status", "delay_ms": 1_500 }),
        json!({ "fault": "stall", "on": "status" }),
        json!({ "fault": "reset", "on": "status" }),
        json!({ "fault": "status", "code": 503, "on": "/health", "every": 2 }),
        json!({ "fault": "model-list", "names": ["other", "other"], "every": 2 }),
        json!({ "fault": "odd-metrics" }),
        json!({ "fault": "refuse-chunked" }),
        json!({ "fault": "virtual-host" }),
    ];
    let mut chosen = all[draw.below(all.len())].clone();
    // Half of the time some requests are spared.
    if draw.chance(0.5) && chosen.is_object() && chosen["every"].is_null() && chosen["fault"] != "loading" {
        chosen["chance"] = json!(0.3 + 0.5 * draw.unit());
    }
    chosen
}

/// Breaks one engine after the other until `end`.
pub(crate) async fn break_engines(fleet: &Fleet, end: Instant, mut draw: Draw) -> Result<u32, Failure> {
    let mut count = 0;
    while Instant::now() < end {
        let Some((index, mut engine)) = fleet.take(&mut draw) else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let trouble = breaking(&mut draw);
        let lasts = Duration::from_secs_f64(draw.between(0.4, 1.5));
        fleet.set_able(index, false);
        match trouble {
            Trouble::Kill => {
                engine.kill();
                sleep(lasts).await;
                engine.restart().await?;
            }
            Trouble::Stop => {
                let program = engine.program().ok_or("the engine does not run")?;
                program.signal(Signal::STOP)?;
                sleep(lasts).await;
                program.signal(Signal::CONT)?;
            }
            Trouble::Rules(rules) => {
                engine.fault(&rules).await?;
                sleep(lasts).await;
                clear(&engine).await?;
            }
        }
        count += 1;
        sleep(RECOVERY).await;
        fleet.set_able(index, true);
    }
    Ok(count)
}

/// Puts other faults in force, on one engine after the other, until `end`.
pub(crate) async fn trouble_engines(fleet: &Fleet, end: Instant, mut draw: Draw) -> Result<u32, Failure> {
    let mut count = 0;
    while Instant::now() < end {
        let Some((index, engine)) = fleet.take(&mut draw) else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let rules = other(&mut draw);
        fleet.set_able(index, false);
        engine.fault(&rules).await?;
        sleep(Duration::from_secs_f64(draw.between(0.3, 1.2))).await;
        clear(&engine).await?;
        count += 1;
        drop(engine);
        sleep(RECOVERY).await;
        fleet.set_able(index, true);
    }
    Ok(count)
}

/// Clears all faults. One that closes the port leaves no way in; it ends by itself, and until then this is tried again.
async fn clear(engine: &EngineProcess) -> Result<(), Failure> {
    let mut last = None;
    for _ in 0..50 {
        match engine.fault(&json!([])).await {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
        sleep(Duration::from_millis(100)).await;
    }
    last.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use paddler_engine::FaultRule;

    #[test]
    fn able_is_who_was_so_from_first_to_last() {
        let turns = [(0, true), (100, false), (200, true)];
        assert!(throughout(&turns, 10, 99));
        assert!(!throughout(&turns, 10, 100));
        assert!(!throughout(&turns, 150, 250));
        assert!(throughout(&turns, 200, 900));
    }

    #[test]
    fn every_trouble_is_a_fault_that_engines_know() {
        let mut draw = Draw::new(1);
        for _ in 0..2_000 {
            let rules = other(&mut draw);
            let rules = rules.as_array().cloned().unwrap_or_else(|| vec![rules]);
            rules
                .iter()
                .for_each(|rule| drop(FaultRule::from_json(rule).unwrap()));
        }
    }
}
