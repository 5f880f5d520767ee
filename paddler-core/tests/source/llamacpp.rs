use paddler_core::source::llamacpp::{
    read_health, read_lora_adapters, read_metrics, read_models, read_props, read_slots,
};
use paddler_core::status::{Degraded, Health, Report, Signal};
use paddler_core::upstream::{Abilities, Capability, ModelEntry, Models};

use crate::sample::{Recorded, WANTS_A_KEY};

type Reader = fn(u16, &[u8], &mut Report);

fn read(reader: Reader, name: &str) -> Report {
    let recorded = Recorded::read(name);
    read_text(reader, recorded.status, &recorded.body)
}

fn read_text(reader: Reader, status: u16, body: impl AsRef<[u8]>) -> Report {
    let mut report = Report::new();
    reader(status, body.as_ref(), &mut report);
    report
}

fn degraded(signal: Signal, expected: &str, found: &str) -> Degraded {
    Degraded {
        signal,
        expected: expected.into(),
        found: found.into(),
    }
}

#[test]
fn health() {
    assert_eq!(
        read(read_health, "llamacpp/health_ok").health,
        Some(Health::Ready)
    );
    assert_eq!(
        read(read_health, "llamacpp/health_loading").health,
        Some(Health::Loading)
    );
    let first_generation = r#"{"status":"loading model"}"#;
    assert_eq!(
        read_text(read_health, 503, first_generation).health,
        Some(Health::Loading)
    );
    assert_eq!(
        read_text(read_health, 503, "upstream connect error").health,
        Some(Health::Failing)
    );
    assert_eq!(
        read_text(read_health, 500, r#"{"status":"error"}"#).health,
        Some(Health::Failing)
    );

    let denied = read(read_health, "llamacpp/err_401_slots");
    assert_eq!(denied.health, None);
    assert_eq!(
        denied.degraded,
        [degraded(Signal::Health, "/health", WANTS_A_KEY)]
    );
    let elsewhere = read_text(read_health, 404, "<html>");
    assert_eq!(elsewhere.degraded, [degraded(Signal::Health, "/health", "404")]);
}

#[test]
fn loading_is_said_on_every_path_and_degrades_nothing() {
    let cases: [(Reader, &str); 5] = [
        (read_slots, "llamacpp/slots_loading"),
        (read_props, "llamacpp/props_loading"),
        (read_metrics, "llamacpp/metrics_loading"),
        (read_models, "llamacpp/v1_models_loading"),
        (read_lora_adapters, "llamacpp/health_loading"),
    ];
    for (reader, name) in cases {
        let report = read(reader, name);
        assert_eq!(report.health, Some(Health::Loading), "{name}");
        assert_eq!(report.degraded, [], "{name}");
    }
}

#[test]
fn slots() {
    for (name, busy) in [("llamacpp/slots_idle", 0), ("llamacpp/slots_busy", 4)] {
        let report = read(read_slots, name);
        assert_eq!(
            (report.slots_total, report.slots_busy),
            (Some(4), Some(busy)),
            "{name}"
        );
        assert_eq!(report.degraded, []);
    }
    let older = r#"[{"id":0,"state":0},{"id":1,"state":1},{"id":2,"state":4}]"#;
    let report = read_text(read_slots, 200, older);
    assert_eq!((report.slots_total, report.slots_busy), (Some(3), Some(2)));
}

#[test]
fn slots_that_cannot_be_read_are_unknown() {
    let off = read(read_slots, "llamacpp/err_501_slots_off");
    assert_eq!(
        off.degraded,
        [degraded(
            Signal::Slots,
            "/slots",
            "501: not supported, start it with --slots"
        )]
    );
    let denied = read(read_slots, "llamacpp/err_401_slots");
    assert_eq!(denied.degraded[0].found, WANTS_A_KEY);

    let cases = [
        (200, "<html><body>hello</body></html>", "not JSON"),
        (200, "", "not JSON"),
        (200, r#"[{"id":0,"is_processing":fal"#, "not JSON"),
        (200, "[]", "an empty list"),
        (200, r#"{"slots":4}"#, "unknown shape"),
        (
            200,
            r#"[{"is_processing":true},{"busy":true}]"#,
            "unknown shape: slot 1 does not say",
        ),
        (200, r#"[{"is_processing":"yes"}]"#, "unknown shape"),
        (200, r#"[{"state":5}]"#, "unknown shape: slot 0 does not say"),
        (200, r#"[{"state":-1}]"#, "unknown shape"),
        (
            503,
            r#"{"error":{"code":503,"message":"no slot available"}}"#,
            "503: no slot available",
        ),
        (
            400,
            r#"{"error":{"message":"no such path"}}"#,
            "400: no such path",
        ),
        (404, r#"{"detail":"Not Found"}"#, "404: Not Found"),
        (502, "<html>bad gateway</html>", "502"),
    ];
    for (status, body, found) in cases {
        let report = read_text(read_slots, status, body);
        assert_eq!(
            (report.slots_total, report.slots_busy, report.health),
            (None, None, None),
            "{body}"
        );
        assert_eq!(report.degraded.len(), 1, "{body}");
        assert_eq!(report.degraded[0].signal, Signal::Slots);
        assert!(
            report.degraded[0].found.starts_with(found),
            "{body}: {:?}",
            report.degraded[0].found
        );
    }
}

#[test]
fn what_an_upstream_says_is_cut_before_it_is_repeated() {
    let body = format!(r#"{{"error":"{}\n"}}"#, "no\\u0007".repeat(1000));
    let report = read_text(read_slots, 500, body);
    assert!(report.degraded[0].found.len() < 150);
    assert!(!report.degraded[0].found.contains(char::is_control));

    let refusal = |padding: usize| format!("{{\"error\":\"no\"{}}}", " ".repeat(padding));
    let whole = 64 * 1024;
    let fits = read_text(read_slots, 500, refusal(whole - refusal(0).len()));
    assert_eq!(fits.degraded[0].found, "500: no");
    let too_long = read_text(read_slots, 500, refusal(whole));
    assert_eq!(too_long.degraded[0].found, "500");
}

#[test]
fn props_tell_the_slots_where_slots_do_not() {
    let report = read(read_props, "llamacpp/props");
    assert_eq!((report.slots_total, report.slots_busy), (Some(4), None));
    assert_eq!(report.degraded, []);

    let mut told = read(read_slots, "llamacpp/slots_idle");
    read_props(200, br#"{"total_slots":9}"#, &mut told);
    read_props(401, b"", &mut told);
    assert_eq!((told.slots_total, told.slots_busy), (Some(4), Some(0)));
    assert_eq!(told.degraded, []);

    let cases = [
        (r#"{"role":"other"}"#, "missing"),
        (r#"{"total_slots":0}"#, "0"),
        ("<html>", "not JSON"),
    ];
    for (body, found) in cases {
        let report = read_text(read_props, 200, body);
        assert_eq!(report.slots_total, None);
        assert_eq!(
            report.degraded,
            [degraded(Signal::Slots, "/props total_slots", found)]
        );
    }
    let negative = read_text(read_props, 200, r#"{"total_slots":-4}"#);
    assert_eq!((negative.slots_total, negative.degraded.len()), (None, 1));
}

#[test]
fn models() {
    let report = read(read_models, "llamacpp/models");
    assert_eq!(
        report.models,
        Some(Models::Listed(vec![ModelEntry::new("tiny-a")]))
    );

    let aliases =
        r#"{"data":[{"id":"a","aliases":["a","b","b","","c"],"parent":"a"},{"id":"a"},{"id":""},{}]}"#;
    let mut entry = ModelEntry::new("a");
    entry.aliases = vec!["b".into(), "c".into()];
    assert_eq!(
        read_text(read_models, 200, aliases).models,
        Some(Models::Listed(vec![entry]))
    );

    let ollama = r#"{"models":[{"name":"x:latest","model":"x"},{"name":"y"}]}"#;
    let entries = vec![ModelEntry::new("x"), ModelEntry::new("y")];
    assert_eq!(
        read_text(read_models, 200, ollama).models,
        Some(Models::Listed(entries))
    );
    assert_eq!(
        read_text(read_models, 200, r#"{"data":[]}"#).models,
        Some(Models::Listed(vec![]))
    );

    let cases = [
        ("[]", "unknown shape: no list `data`"),
        (r#"{"data":[{"name":"x"}]}"#, "unknown shape: no `id` in `data`"),
    ];
    for (body, found) in cases {
        let report = read_text(read_models, 200, body);
        assert_eq!(report.models, None);
        assert_eq!(report.degraded, [degraded(Signal::Models, "/v1/models", found)]);
    }
}

#[test]
fn metrics() {
    for (name, running, waiting) in [
        ("llamacpp/metrics_idle", 0, 0),
        ("llamacpp/metrics_busy", 4, 3),
        ("llamacpp/metrics_after", 0, 0),
    ] {
        let report = read(read_metrics, name);
        assert_eq!(
            (report.running, report.waiting),
            (Some(running), Some(waiting)),
            "{name}"
        );
        assert_eq!(report.kv_cache_usage, None, "no longer exported");
        assert_eq!(report.degraded, [], "{name}");
    }
    let older = Recorded::read("llamacpp/metrics_busy").text() + "llamacpp:kv_cache_usage_ratio 0.63\n";
    assert_eq!(read_text(read_metrics, 200, older).kv_cache_usage, Some(0.63));

    let off = read(read_metrics, "llamacpp/err_501_metrics_off");
    let found = "501: not supported, start it with --metrics";
    let expected = [
        degraded(Signal::Running, "llamacpp:requests_processing", found),
        degraded(Signal::Waiting, "llamacpp:requests_deferred", found),
    ];
    assert_eq!(off.degraded, expected);
    let html = read_text(read_metrics, 200, "<html>\n<body>1 2\n");
    assert_eq!(html.degraded[0].found, "not a metrics page");
}

#[test]
fn lora_adapters() {
    let report = read(read_lora_adapters, "llamacpp/lora_adapters");
    assert_eq!(
        report.loaded_adapters,
        Some(vec!["lora-a".into(), "lora-b".into()])
    );
    assert_eq!(report.adapters, None, "requests cannot ask for them by name");
    assert_eq!(report.degraded, []);

    let none = read(read_lora_adapters, "llamacpp/lora_adapters_none");
    assert_eq!((none.loaded_adapters, none.degraded.len()), (Some(vec![]), 0));
    let other_systems = br#"[{"path":"C:\\loras\\sql.v2.gguf"},{"path":".hidden"},{"path":""},{"path":"x"}]"#;
    assert_eq!(
        read_text(read_lora_adapters, 200, other_systems).loaded_adapters,
        Some(vec!["sql.v2".into(), ".hidden".into(), "".into(), "x".into()])
    );
    let broken = read_text(read_lora_adapters, 200, r#"[{"id":0}]"#);
    assert_eq!(broken.loaded_adapters, None);
    assert_eq!(broken.degraded[0].signal, Signal::Adapters);
}

#[test]
fn a_server_in_router_mode_tells_its_models_and_lacks_nothing() {
    let mut report = Report::new();
    for (reader, name) in [
        (read_health as Reader, "health"),
        (read_slots, "slots"),
        (read_metrics, "metrics"),
        (read_props, "props"),
        (read_models, "models"),
    ] {
        let recorded = Recorded::read(&format!("llamacpp_router/{name}"));
        reader(recorded.status, &recorded.body, &mut report);
    }
    assert!(report.degraded.is_empty(), "{:?}", report.degraded);
    assert_eq!((report.health, report.slots_total), (Some(Health::Ready), None));
    assert!(matches!(&report.models, Some(Models::Listed(models)) if models.len() == 2));
}

#[test]
fn how_long_a_prompt_may_be_and_what_may_stand_in_it() {
    let context = |reader, name| read(reader, name).abilities.context;
    assert_eq!(context(read_slots, "llamacpp/slots_idle"), Some(8192));
    assert_eq!(context(read_props, "llamacpp/props"), Some(8192));
    let uneven =
        r#"[{"id":0,"n_ctx":512,"is_processing":false},{"id":1,"n_ctx":1024,"is_processing":false}]"#;
    assert_eq!(read_text(read_slots, 200, uneven).abilities.context, Some(1024));
    // One that does not tell may have any.
    let one = uneven.replace("\"n_ctx\":512,", "");
    assert_eq!(read_text(read_slots, 200, one).abilities.context, None);
    let list =
        |inputs: &str| format!(r#"{{"data":[{{"id":"a","architecture":{{"input_modalities":{inputs}}}}}]}}"#);
    let can = |inputs| read_text(read_models, 200, list(inputs)).abilities.can;
    assert_eq!(
        can(r#"["text"]"#),
        read(read_models, "llamacpp/models").abilities.can
    );
    assert_eq!(
        can(r#"["text"]"#),
        [(Capability::Vision, false), (Capability::Audio, false)].into()
    );
    assert_eq!(
        can(r#"["text","image"]"#),
        [(Capability::Vision, true), (Capability::Audio, false)].into()
    );
    assert_eq!(
        read_text(read_models, 200, r#"{"data":[{"id":"a"}]}"#).abilities,
        Abilities::default()
    );
}
