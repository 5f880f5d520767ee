//! How does SGLang say how it is?
//!
//! `/v1/loads` tells it for each data-parallel rank, without any flag. Servers that are older than that path tell it on
//! `/metrics`, if they were started with `--enable-metrics`. Which adapters have requests is told nowhere.

use serde::Deserialize;

use super::Endpoint;
use super::answer::{json, refusal};
use super::prometheus::Selector;
use super::vllm::VllmNames;
use crate::status::{Health, Report, Signal};

/// Under which names its metrics are looked for.
pub fn names() -> VllmNames {
    let one = |name| vec![Selector::new(name)];
    VllmNames {
        running: one("sglang:num_running_reqs"),
        waiting: one("sglang:num_queue_reqs"),
        kv: one("sglang:token_usage"),
        ..VllmNames::none()
    }
}

#[derive(Deserialize)]
struct Loads {
    loads: Vec<Rank>,
}

#[derive(Deserialize)]
struct Rank {
    num_running_reqs: Option<u32>,
    num_waiting_reqs: Option<u32>,
    max_running_requests: Option<u32>,
    token_usage: Option<f64>,
}

/// Reads `GET /v1/loads` into [`Report::health`] (who tells his load is ready), [`Report::running`], [`Report::waiting`], [`Report::max_sequences`] (sums over the ranks) and
/// [`Report::kv_cache_usage`] (the highest). A server that has no such path (404, 405) is to be asked for `/metrics`, so that
/// nothing is degraded then; anything else that cannot be read is.
///
/// ```
/// use paddler_core::source::sglang::read_loads;
/// use paddler_core::status::Report;
///
/// let rank = r#"{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1,"max_running_requests":8,"token_usage":0.25}"#;
/// let mut report = Report::new();
/// read_loads(200, format!(r#"{{"loads":[{rank},{rank}]}}"#).as_bytes(), &mut report);
/// assert_eq!((report.running, report.waiting, report.max_sequences), (Some(6), Some(2), Some(16)));
/// assert_eq!(report.kv_cache_usage, Some(0.25));
/// ```
pub fn read_loads(status: u16, body: &[u8], report: &mut Report) {
    let ranks = match status {
        200 => json::<Loads>(body).map(|told| told.loads),
        404 | 405 => return,
        _ => Err(refusal(status, body)),
    };
    let ranks = ranks.and_then(|ranks| match ranks.is_empty() {
        true => Err("an empty list".to_owned()),
        false => Ok(ranks),
    });
    let path = Endpoint::Loads.path();
    let ranks = match ranks {
        Ok(ranks) => ranks,
        Err(found) => {
            for signal in [Signal::Running, Signal::Waiting, Signal::KvCache] {
                report.degrade(signal, path, found.clone());
            }
            return;
        }
    };
    report.health = Some(Health::Ready);
    let sum = |of: fn(&Rank) -> Option<u32>| {
        ranks
            .iter()
            .try_fold(0u32, |sum, rank| sum.checked_add(of(rank)?))
    };
    report.running = sum(|rank| rank.num_running_reqs);
    report.waiting = sum(|rank| rank.num_waiting_reqs);
    report.max_sequences = sum(|rank| rank.max_running_requests).filter(|most| *most > 0);
    report.kv_cache_usage = highest(&ranks);
    let told = [
        (Signal::Running, report.running.is_some(), "num_running_reqs"),
        (Signal::Waiting, report.waiting.is_some(), "num_waiting_reqs"),
        (Signal::KvCache, report.kv_cache_usage.is_some(), "token_usage"),
    ];
    for (signal, is_told, field) in told {
        if !is_told {
            let found = "missing, or not what it should be";
            report.degrade(signal, format!("{path} {field}"), found);
        }
    }
}

/// A request meets the fullest rank as likely as any other.
fn highest(ranks: &[Rank]) -> Option<f64> {
    ranks.iter().try_fold(0f64, |highest, rank| {
        let usage = rank.token_usage.filter(|usage| (0.0..=1.001).contains(usage))?;
        Some(highest.max(usage.min(1.0)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, body: &str) -> Report {
        let mut report = Report::new();
        read_loads(status, body.as_bytes(), &mut report);
        report
    }

    #[test]
    fn what_one_rank_does_not_say_is_unknown_of_all_and_said() {
        let whole = r#"{"num_running_reqs":1,"num_waiting_reqs":0,"token_usage":0.5}"#;
        for (other, signal) in [
            (r#"{"num_waiting_reqs":0,"token_usage":0.5}"#, Signal::Running),
            (
                r#"{"num_running_reqs":1,"num_waiting_reqs":null,"token_usage":0.5}"#,
                Signal::Waiting,
            ),
            (
                r#"{"num_running_reqs":1,"num_waiting_reqs":0,"token_usage":45}"#,
                Signal::KvCache,
            ),
        ] {
            let report = read(200, &format!(r#"{{"loads":[{whole},{other}]}}"#));
            let degraded: Vec<_> = report.degraded.iter().map(|one| one.signal).collect();
            assert_eq!(degraded, [signal], "{other}");
            assert_eq!(report.max_sequences, None, "which is no fault");
        }
    }

    #[test]
    fn without_the_path_nothing_is_wrong_and_with_nonsense_all_is() {
        assert!(read(404, "").degraded.is_empty());
        for (status, body) in [(200, "{}"), (200, r#"{"loads":[]}"#), (200, "<p>"), (401, "")] {
            let report = read(status, body);
            assert_eq!(report.degraded.len(), 3, "{body}");
            assert!(report.running.is_none() && report.kv_cache_usage.is_none());
        }
    }
}
