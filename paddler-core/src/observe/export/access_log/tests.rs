use serde_json::{Value as Json, json};

use super::*;
use crate::observe::{End, TrailAttempt};
use crate::request::RequestFacts;
use crate::upstream::UpstreamId;

/// A request that was sent twice and answered.
fn trail() -> Trail {
    let at = Moment::from_millis;
    let sent = |id: &str, moment, ended| TrailAttempt {
        upstream: UpstreamId::new(id).unwrap(),
        at: at(moment),
        model: None,
        passed_over: Vec::new(),
        span_id: None,
        why: None,
        ended,
        ended_at: None,
    };
    let facts = RequestFacts {
        model: Some("org/x 1".into()),
        ..RequestFacts::default()
    };
    Trail {
        class: "chat",
        facts: Some(facts),
        client: Some("team a".into()),
        address: Some([192, 0, 2, 1].into()),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        began: Some(at(1_010)),
        attempts: vec![sent("gpu-1", 1_250, Some("not_sent")), sent("gpu-2", 1_300, None)],
        first_byte: Some(at(2_000)),
        ended: Some(at(3_500)),
        end: Some(End::Complete),
        status: Some(200),
        answer_bytes: 77,
        prompt_tokens: Some(12),
        output_tokens: Some(0),
        ..Trail::begun("r-1", "POST", "/v1/chat/completions", at(1_000))
    }
}

#[test]
fn a_line_of_json_says_all_that_is_known() {
    let line = line(&trail(), "T", LogFormat::Json);
    assert_eq!(line.matches('\n').count(), 1);
    let says: Json = serde_json::from_str(&line).unwrap();
    assert_eq!(
        says,
        json!({
            "time": "T", "id": "r-1", "trace": "0af7651916cd43dd8448eb211c80319c", "client": "team a",
            "address": "192.0.2.1", "method": "POST", "path": "/v1/chat/completions", "class": "chat",
            "model": "org/x 1", "upstream": "gpu-2", "attempts": 2, "status": 200, "end": "complete",
            "wait_seconds": 0.24, "first_byte_seconds": 1, "duration_seconds": 2.5,
            "prompt_tokens": 12, "output_tokens": 0, "answer_bytes": 77,
        })
    );
}

#[test]
fn a_line_of_text_says_the_same() {
    let text = line(&trail(), "T", LogFormat::Text);
    assert_eq!(
        text,
        "time=T id=r-1 trace=0af7651916cd43dd8448eb211c80319c client=\"team a\" address=192.0.2.1 method=POST \
         path=/v1/chat/completions class=chat model=\"org/x 1\" upstream=gpu-2 attempts=2 status=200 end=complete \
         wait_seconds=0.24 first_byte_seconds=1 duration_seconds=2.5 prompt_tokens=12 output_tokens=0 \
         answer_bytes=77\n"
    );
}

#[test]
fn what_a_client_makes_up_stays_within_its_line_and_its_bound() {
    let mut trail = trail();
    let evil = format!("a\"b\n{{}}\u{1b}[2J\u{2028}={}", "é".repeat(10_000));
    trail.facts.as_mut().unwrap().model = Some(evil.as_str().into());
    trail.path = "/a=b\"c".into();
    for format in [LogFormat::Json, LogFormat::Text] {
        let line = line(&trail, "T", format);
        assert!(line.len() < 1_500, "{}", line.len());
        let controls = line.trim_end_matches('\n').chars().filter(|c| c.is_control());
        assert_eq!(controls.count(), 0, "{line}");
        assert!(!line.contains('\u{2028}'), "some readers end a line there");
    }
    let says: Json = serde_json::from_str(&line(&trail, "T", LogFormat::Json)).unwrap();
    assert!(evil.starts_with(says["model"].as_str().unwrap()));
    assert!(line(&trail, "T", LogFormat::Text).contains(" path=\"/a=b\\\"c\" "));
}

/// Tries to be one file in a folder of its own.
fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("paddler-access-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn a_file_that_was_moved_away_is_made_anew() {
    let folder = folder("moved");
    let [file, moved] = ["access.jsonl", "access.jsonl.1"].map(|name| folder.join(name));
    std::fs::write(&file, "before\n").unwrap();
    let log = AccessLog::open(LogTarget::File(file.clone()), LogFormat::Json).unwrap();
    let lines = |file: &std::path::Path| std::fs::read_to_string(file).unwrap().lines().count();
    log.ended(&trail());
    log.flush();
    assert_eq!(lines(&file), 2, "it is written behind what stands there");
    std::fs::rename(&file, &moved).unwrap();
    log.ended(&trail());
    log.reopen();
    log.ended(&trail());
    log.flush();
    assert_eq!((lines(&moved), lines(&file)), (3, 1));
    assert_eq!(log.lost(), [("access_log", 0)]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_cannot_be_written_is_lost_and_counted() {
    // A device without room.
    let full = std::path::PathBuf::from("/dev/full");
    let log = AccessLog::open(LogTarget::File(full), LogFormat::Json).unwrap();
    let many = 1_000;
    for _ in 0..many {
        log.ended(&trail());
    }
    log.flush();
    let lost = log.lost()[0].1;
    assert!(lost > 0 && lost <= many, "{lost}");
    assert!(AccessLog::open(LogTarget::File("/nowhere/at/all".into()), LogFormat::Json).is_err());
}

#[test]
fn whoever_writes_slowly_holds_up_nobody() {
    // Nobody takes what is written into this one.
    let (to, _messages) = sync_channel(2);
    let log = AccessLog {
        to,
        format: LogFormat::Text,
        lost: Arc::default(),
    };
    for _ in 0..10 {
        log.ended(&trail());
    }
    assert_eq!(log.lost(), [("access_log", 8)]);
    log.reopen();
}
