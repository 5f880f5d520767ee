//! How is an upstream, in a word, and why?
//!
//! What most keeps it from work comes first. The words are those of the management API, its page and `paddler top`.

use std::time::Duration;

use super::upstreams::{ServiceStatus, UpstreamStatus};
use crate::health::Cause;
use crate::status::{Health, Signal};

/// The state, and why it is so.
pub(super) fn told(status: &UpstreamStatus) -> (&'static str, String) {
    let mut why = Vec::new();
    let word = word(status, &mut why);
    if status.failed_polls > 0 {
        let polls = plural(status.failed_polls, "poll");
        why.push(match &status.last_failure {
            Some(failure) => format!("{polls} failed: {failure}"),
            None => format!("{polls} failed"),
        });
    }
    (word, why.join("; "))
}

fn word(status: &UpstreamStatus, why: &mut Vec<String>) -> &'static str {
    let service = status.service.as_ref();
    if status.draining {
        why.push(match status.in_flight {
            0 => "idle: it has nothing left".to_owned(),
            left => format!("{} to end", plural(left, "request")),
        });
        return "draining";
    }
    match service {
        Some(service) if service.state == "ejected" => {
            ejected(service, why);
            return "ejected";
        }
        _ if !status.able && status.health == Some(Health::Loading) => return "loading",
        _ if !status.able => {
            if status.health == Some(Health::Failing) {
                let told = status.degraded.iter().find(|one| one.signal == Signal::Health);
                why.push(told.map_or("it says that it fails".to_owned(), |one| {
                    format!("{}: {}", one.expected, one.found)
                }));
            }
            return "unable";
        }
        Some(service) => {
            if let Some(left) = service.paused_for {
                why.push(format!("has asked to be left alone, {} more", time(left)));
                return "paused";
            }
            if service.state == "probing" {
                why.push("one request at a time, until it is seen to serve".to_owned());
                return "probing";
            }
        }
        None => {}
    }
    heard(status, why)
}

/// The state of one that may get work.
fn heard(status: &UpstreamStatus, why: &mut Vec<String>) -> &'static str {
    // Who is asked nothing counts as ready.
    if status.report_age.is_none() && status.health.is_none() {
        return "unheard";
    }
    if !status.degraded.is_empty() {
        let signals: Vec<_> = status
            .degraded
            .iter()
            .map(|one| one.signal.as_str().replace('_', " "))
            .collect();
        why.push(format!("does not tell {}", signals.join(", ")));
        return "degraded";
    }
    match &status.service {
        Some(service) if service.state == "warming" => {
            why.push(match service.ends_in {
                Some(left) => format!("its limit grows, {} more", time(left)),
                None => "its limit grows".to_owned(),
            });
            "warming"
        }
        _ => "healthy",
    }
}

fn ejected(service: &ServiceStatus, why: &mut Vec<String>) {
    why.extend(service.cause.map(|cause| sentence(cause).to_owned()));
    why.extend(service.ends_in.map(|left| format!("probed in {}", time(left))));
    if service.last_resort {
        why.push("gets what nobody else could serve".to_owned());
    }
}

fn sentence(cause: Cause) -> &'static str {
    match cause {
        Cause::Unreachable => "nobody could be reached there",
        Cause::Broke => "its connections broke",
        Cause::CutShort => "its answers were cut short",
        Cause::Late => "it did not answer in time",
        Cause::Unavailable => "it said that it cannot",
        Cause::Failed => "its answers were errors",
        Cause::SuccessRate => "fewer of its answers were good than of the others'",
    }
}

fn plural(many: u32, what: &str) -> String {
    format!("{many} {what}{}", if many == 1 { "" } else { "s" })
}

fn time(left: Duration) -> String {
    match left.as_secs_f64() {
        seconds if seconds < 60.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.0} min", seconds / 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;
    use crate::schedule::trees;
    use crate::status::{Degraded, Report, StatusBoard, StatusEvent};
    use crate::upstream::UpstreamSpec;

    /// One that is well.
    fn status() -> UpstreamStatus {
        let mut board = StatusBoard::new(trees::gateway());
        let spec = UpstreamSpec::new("a", "http://127.0.0.1:1").unwrap();
        board.apply(StatusEvent::Upsert(spec.clone()), Moment::ZERO);
        let heard = StatusEvent::Report {
            id: spec.id,
            report: Report::new(),
            sample: None,
        };
        board.apply(heard, Moment::ZERO);
        UpstreamStatus::find(&board.publish(Moment::ZERO), "a", Moment::ZERO).unwrap()
    }

    #[test]
    fn what_keeps_it_from_work_comes_first() {
        let told = |change: &dyn Fn(&mut UpstreamStatus)| {
            let mut status = status();
            change(&mut status);
            let (word, why) = super::told(&status);
            format!("{word}: {why}")
        };
        let service = |status: &mut UpstreamStatus, change: &dyn Fn(&mut ServiceStatus)| {
            change(status.service.as_mut().unwrap());
        };
        let slots = Degraded {
            signal: Signal::Slots,
            expected: "/slots".to_owned(),
            found: "501".to_owned(),
        };
        assert_eq!(told(&|_| {}), "healthy: ");
        assert_eq!(
            told(&|one| one.degraded.push(slots.clone())),
            "degraded: does not tell slots"
        );
        assert_eq!(told(&|one| one.report_age = None), "unheard: ");
        let warming = |one: &mut UpstreamStatus| {
            service(one, &|service| {
                (service.state, service.ends_in) = ("warming", Some(Duration::from_secs(90)));
            });
        };
        assert_eq!(told(&warming), "warming: its limit grows, 2 min more");
        let probing = |one: &mut UpstreamStatus| service(one, &|service| service.state = "probing");
        assert_eq!(
            told(&probing),
            "probing: one request at a time, until it is seen to serve"
        );
        let paused = |one: &mut UpstreamStatus| {
            service(one, &|service| {
                service.paused_for = Some(Duration::from_millis(2500));
            });
        };
        assert_eq!(told(&paused), "paused: has asked to be left alone, 2.5 s more");
        let failing = |one: &mut UpstreamStatus| {
            (one.able, one.health, one.failed_polls) = (false, Some(Health::Failing), 1);
        };
        assert_eq!(told(&failing), "unable: it says that it fails; 1 poll failed");
        let loading = |one: &mut UpstreamStatus| (one.able, one.health) = (false, Some(Health::Loading));
        assert_eq!(told(&loading), "loading: ");
        let gone = |one: &mut UpstreamStatus| {
            (one.able, one.failed_polls, one.last_failure) =
                (false, 3, Some("unreachable: refused".to_owned()));
        };
        assert_eq!(told(&gone), "unable: 3 polls failed: unreachable: refused");
        let ejected = |one: &mut UpstreamStatus| {
            gone(one);
            service(one, &|service| {
                (service.state, service.cause, service.last_resort) = ("ejected", Some(Cause::Late), true);
                service.ends_in = Some(Duration::from_secs(3));
            });
        };
        assert_eq!(
            told(&ejected),
            "ejected: it did not answer in time; probed in 3.0 s; gets what nobody else could serve; \
             3 polls failed: unreachable: refused"
        );
        let drained = |one: &mut UpstreamStatus| {
            service(one, &|service| service.state = "ejected");
            (one.draining, one.in_flight) = (true, 2);
        };
        assert_eq!(told(&drained), "draining: 2 requests to end");
    }
}
