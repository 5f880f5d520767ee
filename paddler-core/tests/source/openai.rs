use paddler_core::source::openai::{read_health, read_models};
use paddler_core::status::{Health, Report, Signal};
use paddler_core::upstream::{ModelEntry, Models};

use crate::sample::{Recorded, WANTS_A_KEY};

#[test]
fn any_answer_but_503_means_ready() {
    for (status, health) in [
        (200, Health::Ready),
        (404, Health::Ready),
        (401, Health::Ready),
        (503, Health::Failing),
    ] {
        let mut report = Report::new();
        read_health(status, b"", &mut report);
        assert_eq!(report.health, Some(health), "{status}");
    }
}

#[test]
fn models() {
    let recorded = Recorded::read("vllm/v1_models");
    let mut report = Report::new();
    read_models(recorded.status, &recorded.body, &mut report);
    let entries = [
        ModelEntry::new("tiny"),
        ModelEntry::adapter("lora-a", "tiny"),
        ModelEntry::adapter("lora-b", "tiny"),
    ];
    assert_eq!(report.models, Some(Models::Listed(entries.to_vec())));

    for status in [404, 405, 501] {
        let mut report = Report::new();
        read_models(status, b"no such path", &mut report);
        assert_eq!(
            (report.models, report.degraded.len()),
            (Some(Models::Any), 0),
            "{status}"
        );
    }
}

#[test]
fn models_that_cannot_be_read_are_unknown() {
    let unauthorised = Recorded::read("vllm/err_401_models");
    let forbidden = WANTS_A_KEY.replace("401", "403");
    let cases: [(u16, &[u8], &str); 5] = [
        (unauthorised.status, &unauthorised.body, WANTS_A_KEY),
        (403, b"", &forbidden),
        (429, br#"{"error":{"message":"slow down"}}"#, "429: slow down"),
        (200, b"<!DOCTYPE html>", "not JSON"),
        (200, br#"{"object":"list"}"#, "unknown shape: no list `data`"),
    ];
    for (status, body, found) in cases {
        let mut report = Report::new();
        read_models(status, body, &mut report);
        assert_eq!(report.models, None);
        assert_eq!(
            (report.degraded[0].signal, report.degraded[0].found.as_str()),
            (Signal::Models, found)
        );
    }
}
