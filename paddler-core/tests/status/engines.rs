//! What is learnt of real HTTP servers: the simulated engines, and plain endpoints.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use paddler_core::forward::Body;
use paddler_core::status::{FailureKind, Health, Signal};
use paddler_core::upstream::http::HttpConnect;
use paddler_core::upstream::{Connect, ModelEntry, Models};
use paddler_engine::{Engine, EngineConfig, Fault, FaultRule, Scope};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::rig::{Rig, quick, spec};

/// Keeps so many requests at the engine, each for far longer than a test.
pub(crate) fn occupy(engine: &Engine, model: &str, requests: usize) -> JoinSet<()> {
    let upstream = HttpConnect::default()
        .connect(&spec("load", &engine.url()))
        .unwrap();
    let body = format!(r#"{{"model":"{model}","prompt":"a b c d","max_tokens":900}}"#);
    let mut all = JoinSet::new();
    for _ in 0..requests {
        let (upstream, body) = (upstream.clone(), body.clone());
        all.spawn(async move {
            let request = Request::post("/v1/completions").header("content-type", "application/json");
            drop(upstream.call(request.body(Body::from(body)).unwrap()).await);
        });
    }
    all
}

/// Answers each path as the function says, which is asked for `POST /path` where something is posted.
async fn plain(
    answer: impl Fn(&str) -> (u16, &'static str) + Copy + Send + 'static,
) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(move |request: Request<Incoming>| async move {
                let path = request.uri().path();
                let (status, body) = match request.method() {
                    &Method::GET => answer(path),
                    method => answer(&format!("{method} {path}")),
                };
                let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                Ok::<_, Infallible>(response)
            });
            connections.spawn(async move {
                http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await
                    .ok();
            });
        }
    });
    (url, server)
}

#[tokio::test]
async fn llamacpp_is_found_out_and_says_how_it_is() {
    let engine = Engine::start(
        EngineConfig::llamacpp("tiny")
            .slots(2)
            .decode_tokens_per_second(1.0),
    )
    .await
    .unwrap();
    let rig = Rig::http([spec("a", &engine.url())], quick());
    let report = rig
        .report("a", "an idle report", |report| report.slots_busy == Some(0))
        .await;
    assert_eq!(report.health, Some(Health::Ready));
    assert_eq!(
        (report.slots_total, report.running, report.waiting),
        (Some(2), Some(0), Some(0))
    );
    assert_eq!(report.models, Some(Models::Listed(vec![ModelEntry::new("tiny")])));
    assert_eq!(
        (report.kv_cache_usage, report.adapters),
        (None, None),
        "it says nothing of these"
    );
    assert_eq!(report.degraded, []);

    let _load = occupy(&engine, "tiny", 3);
    let busy = rig
        .report("a", "two running, one deferred", |report| {
            report.waiting == Some(1)
        })
        .await;
    assert_eq!((busy.slots_busy, busy.slots_total), (Some(2), Some(2)));
    assert_eq!(busy.loaded_adapters, Some(vec![]), "remembered from poll to poll");
    let entry = rig
        .entry("a", "all of it others'", |entry| entry.others() == 3)
        .await;
    assert_eq!(entry.limit(), Some(2));
    let asked = engine.stats().by_path;
    assert!(
        asked["/lora-adapters"] <= asked["/slots"].div_ceil(10),
        "what seldom changes is asked seldom"
    );
    assert_eq!(
        engine.stats().by_path.get("/version"),
        Some(&1),
        "who it is was asked once"
    );
}

#[tokio::test]
async fn vllm_is_found_out_with_its_adapters_and_kv_cache() {
    let config = EngineConfig::vllm("base")
        .adapters(["sql", "chat"])
        .max_loras(2)
        .slots(2);
    let engine = Engine::start(config.decode_tokens_per_second(1.0).num_gpu_blocks(64))
        .await
        .unwrap();
    let rig = Rig::http([spec("v", &engine.url())], quick());
    let report = rig
        .report("v", "a report with models", |report| report.models.is_some())
        .await;
    assert_eq!(report.health, Some(Health::Ready));
    assert_eq!(
        (report.running, report.waiting, report.slots_total),
        (Some(0), Some(0), None)
    );
    let expected = vec![
        ModelEntry::new("base"),
        ModelEntry::adapter("sql", "base"),
        ModelEntry::adapter("chat", "base"),
    ];
    assert_eq!(report.models, Some(Models::Listed(expected)));
    assert_eq!(report.degraded, []);
    let snapshot = rig.snapshot();
    assert_eq!(snapshot.model("sql").and_then(|row| row.parent()), Some("base"));

    let _load = occupy(&engine, "sql", 3);
    let busy = rig
        .report("v", "two running, one waiting, an adapter, KV in use", |report| {
            let adapters = report.adapters.as_ref().map(|adapters| adapters.running.clone());
            (report.running, report.waiting) == (Some(2), Some(1)) && adapters == Some(vec!["sql".into()])
        })
        .await;
    assert!(
        busy.kv_cache_usage
            .is_some_and(|usage| usage > 0.0 && usage <= 1.0),
        "{busy:?}"
    );
    assert_eq!(busy.adapters.unwrap().max, Some(2));
}

#[tokio::test]
async fn any_other_endpoint_is_known_by_its_models() {
    let (url, _server) = plain(|path| match path {
        "/v1/models" => (
            200,
            r#"{"object":"list","data":[{"id":"gpt","owned_by":"someone"}]}"#,
        ),
        _ => (404, "no such page"),
    })
    .await;
    let rig = Rig::http([spec("o", &url)], quick());
    let report = rig.report("o", "a report", |_| true).await;
    assert_eq!(report.health, Some(Health::Ready));
    assert_eq!(report.models, Some(Models::Listed(vec![ModelEntry::new("gpt")])));
    assert_eq!(
        (report.running, report.waiting, report.slots_total),
        (None, None, None)
    );
    assert_eq!(report.degraded, [], "nothing is expected that it never has");
}

#[tokio::test]
async fn an_endpoint_that_tells_no_models_serves_any_model() {
    let (url, _server) = plain(|path| match path {
        "/health" => (200, ""),
        _ => (404, ""),
    })
    .await;
    let (none, _other) = plain(|_| (404, "")).await;
    let mut said = spec("said", &none);
    said.engine = paddler_core::upstream::Engine::Openai;
    let rig = Rig::http([spec("o", &url), said], quick());
    for id in ["o", "said"] {
        let report = rig.report(id, "a report", |_| true).await;
        assert_eq!(
            (report.health, report.models),
            (Some(Health::Ready), Some(Models::Any)),
            "{id}"
        );
    }
    assert!(rig.snapshot().models_complete());
}

#[tokio::test]
async fn a_server_that_knows_no_path_at_all_is_no_engine_until_it_knows_one() {
    static COMES_UP: AtomicBool = AtomicBool::new(false);
    for (status, others) in [(404, 404), (405, 404), (501, 405)] {
        COMES_UP.store(false, Relaxed);
        let answer = move |path: &str| match path {
            "/v1/models" if COMES_UP.load(Relaxed) => (200, r#"{"data":[{"id":"m"}]}"#),
            "/v1/models" => (status, "<html>"),
            _ => (others, ""),
        };
        let (url, _server) = plain(answer).await;
        let rig = Rig::http([spec("o", &url)], quick());
        let report = rig.report("o", "a report", |_| true).await;
        let none = Some(Models::Listed(Vec::new()));
        assert_eq!((report.health, report.models), (Some(Health::Failing), none));
        let told = &report.degraded[0];
        assert_eq!(told.signal, Signal::Health);
        for path in ["/health", "/props", "/metrics", "/v1/models"] {
            assert!(told.expected.contains(path), "{told:?}");
        }
        assert!(told.found.contains("engine: openai"), "{told:?}");
        assert!(told.found.contains(&status.to_string()), "{told:?}");
        // A gateway in front of it had not known it yet.
        COMES_UP.store(true, Relaxed);
        let report = rig
            .report("o", "an engine", |report| report.health == Some(Health::Ready))
            .await;
        assert_eq!(report.models, Some(Models::Listed(vec![ModelEntry::new("m")])));
    }
}

#[tokio::test]
async fn sglang_is_found_out_and_tells_its_load_with_and_without_its_page_of_loads() {
    const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model","owned_by":"sglang"}]}"#;
    const LOADS: &str = r#"{"version":"0.5.23","loads":[{"dp_rank":0,"num_running_reqs":3,"num_waiting_reqs":1,
        "max_running_requests":64,"token_usage":0.25},{"dp_rank":1,"num_running_reqs":1,"num_waiting_reqs":0,
        "max_running_requests":64,"token_usage":0.5}]}"#;
    const PAGE: &str = "sglang:num_running_reqs{dp_rank=\"0\"} 3\nsglang:num_running_reqs{dp_rank=\"1\"} 1\n\
                        sglang:num_queue_reqs{dp_rank=\"0\"} 1\nsglang:num_queue_reqs{dp_rank=\"1\"} 0\n\
                        sglang:token_usage{dp_rank=\"0\"} 0.25\nsglang:token_usage{dp_rank=\"1\"} 0.5\n";
    let (new, _server) = plain(|path| match path {
        "/v1/models" => (200, MODELS),
        "/v1/loads" => (200, LOADS),
        "/health" => (200, ""),
        _ => (404, ""),
    })
    .await;
    let (old, _other) = plain(|path| match path {
        "/v1/models" => (200, MODELS),
        "/metrics" => (200, PAGE),
        "/health" => (200, ""),
        _ => (404, ""),
    })
    .await;
    let rig = Rig::http([spec("new", &new), spec("old", &old)], quick());
    for (id, room) in [("new", Some(128)), ("old", None)] {
        let report = rig
            .report(id, "its load", |report| report.running.is_some())
            .await;
        assert_eq!((report.running, report.waiting), (Some(4), Some(1)), "{id}");
        assert_eq!(
            (report.kv_cache_usage, report.max_sequences),
            (Some(0.5), room),
            "{id}"
        );
        assert_eq!(
            (report.health, report.degraded),
            (Some(Health::Ready), vec![]),
            "{id}"
        );
    }
}

#[tokio::test]
async fn trtllm_and_ollama_are_found_out() {
    let (trtllm, _server) = plain(|path| match path {
        "/v1/models" => (
            200,
            r#"{"object":"list","data":[{"id":"m","owned_by":"tensorrt_llm"}]}"#,
        ),
        "/prometheus/metrics" => (
            200,
            "trtllm_num_requests_running 2\ntrtllm_num_requests_waiting 0\ntrtllm_kv_cache_utilization 0.1\n",
        ),
        "/health" => (200, ""),
        // Something else than figures for Prometheus.
        "/metrics" => (200, "[]"),
        _ => (404, ""),
    })
    .await;
    let (ollama, _other) = plain(|path| match path {
        "/v1/models" => (
            200,
            r#"{"object":"list","data":[{"id":"m:latest","owned_by":"library"}]}"#,
        ),
        "/api/tags" => (
            200,
            r#"{"models":[{"name":"m:latest","model":"m:latest","size":1}]}"#,
        ),
        _ => (404, "404 page not found"),
    })
    .await;
    let rig = Rig::http([spec("t", &trtllm), spec("o", &ollama)], quick());
    let report = rig
        .report("t", "its load", |report| report.running.is_some())
        .await;
    assert_eq!((report.running, report.kv_cache_usage), (Some(2), Some(0.1)));
    assert_eq!(report.degraded, []);
    let report = rig
        .report("o", "its models", |report| report.models.is_some())
        .await;
    let mut entry = ModelEntry::new("m:latest");
    entry.aliases.push("m".into());
    assert_eq!(report.models, Some(Models::Listed(vec![entry])));
    assert_eq!((report.health, report.degraded), (Some(Health::Ready), vec![]));
}

/// Triton's own API; it knows no other path.
fn triton(path: &str) -> (u16, &'static str) {
    match path {
        "/v2" => (
            200,
            r#"{"name":"triton","version":"2.42.0","extensions":["classification","sequence"]}"#,
        ),
        "/v2/health/ready" => (200, ""),
        "POST /v2/repository/index" => (
            200,
            r#"[{"name":"ensemble","version":"1","state":"READY"},{"name":"tensorrt_llm","version":"1","state":"READY"}]"#,
        ),
        _ => (400, ""),
    }
}

#[tokio::test]
async fn triton_is_found_out_and_its_metrics_are_read_where_they_stand() {
    const PAGE: &str = "nv_inference_pending_request_count{model=\"ensemble\",version=\"1\"} 1\n\
        nv_inference_pending_request_count{model=\"tensorrt_llm\",version=\"1\"} 0\n\
        nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"waiting\",version=\"1\"} 2\n\
        nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"context\",version=\"1\"} 1\n\
        nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"scheduled\",version=\"1\"} 5\n\
        nv_trt_llm_request_metrics{model=\"tensorrt_llm\",request_type=\"max\",version=\"1\"} 512\n\
        nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"tensorrt_llm\",version=\"1\"} 0.25\n";
    let (own, _server) = plain(triton).await;
    let (pages, _other) = plain(|path| match path {
        "/metrics" => (200, PAGE),
        _ => (404, ""),
    })
    .await;
    let (vllm, _third) = plain(|path| match path {
        "/v1/models" => (200, r#"{"object":"list","data":[{"id":"m","owned_by":"vllm"}]}"#),
        "/health" => (200, ""),
        _ => (404, ""),
    })
    .await;
    let at = |id: &str, url: &str, page: String| {
        let mut spec = spec(id, url);
        spec.metrics_url = Some(page);
        spec
    };
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .unwrap();
    let nowhere = format!("http://{}/metrics", listener.local_addr().unwrap());
    drop(listener);
    let upstreams = [
        at("t", &own, pages.clone()),
        at("v", &vllm, format!("{pages}/metrics")),
        at("gone", &own, nowhere.clone()),
    ];
    let rig = Rig::http(upstreams, quick());
    let report = rig
        .report("t", "its load", |report| report.running.is_some())
        .await;
    assert_eq!((report.running, report.waiting), (Some(5), Some(3)));
    assert_eq!(
        (report.max_sequences, report.kv_cache_usage),
        (Some(512), Some(0.25))
    );
    let models = ["ensemble", "tensorrt_llm"].map(ModelEntry::new);
    assert_eq!(report.models, Some(Models::Listed(models.into())));
    assert_eq!((report.health, report.degraded), (Some(Health::Ready), vec![]));

    // Another page is asked for than its own, which has none: what that page does not have is unknown.
    let report = rig
        .report("v", "a report", |report| report.models.is_some())
        .await;
    let said: Vec<_> = report.degraded.iter().map(|one| one.found.as_str()).collect();
    assert_eq!(said, ["missing"; 3]);

    let report = rig
        .report("gone", "a report", |report| report.models.is_some())
        .await;
    assert_eq!((report.health, report.running), (Some(Health::Ready), None));
    let said: Vec<_> = report
        .degraded
        .iter()
        .map(|one| (one.signal, one.expected.clone()))
        .collect();
    let unknown = [Signal::Running, Signal::Waiting, Signal::KvCache];
    assert_eq!(said, unknown.map(|signal| (signal, nowhere.clone())));
    let entry = rig.entry("gone", "a report", |_| true).await;
    assert_eq!(entry.failures(), 0, "it serves all the same");
}

#[tokio::test]
async fn who_hangs_where_metrics_stand_takes_nobody_out_of_service() {
    let (own, _server) = plain(triton).await;
    // It takes connections, and says nothing.
    let silent = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .unwrap();
    let mut spec = spec("t", &own);
    spec.metrics_url = Some(format!("http://{}/metrics", silent.local_addr().unwrap()));
    let mut options = quick();
    options.timeout = Duration::from_secs(20);
    let rig = Rig::http([spec], options);
    let report = rig
        .report("t", "a report", |report| report.models.is_some())
        .await;
    assert_eq!(report.health, Some(Health::Ready));
    assert_eq!(report.degraded[0].found, "no answer within 1s");
}

#[tokio::test]
async fn tritons_frontend_for_openai_is_asked_as_it_answers() {
    let (url, _server) = plain(|path| match path {
        "/v1/models" => (
            200,
            r#"{"object":"list","data":[{"id":"llama","owned_by":"Triton Inference Server"}]}"#,
        ),
        "/metrics" => (
            200,
            "nv_inference_pending_request_count{model=\"llama\",version=\"1\"} 4\n",
        ),
        _ => (404, r#"{"detail":"Not Found"}"#),
    })
    .await;
    let mut spec = spec("t", &url);
    spec.metrics_url = Some(format!("{url}/metrics"));
    let rig = Rig::http([spec], quick());
    let report = rig
        .report("t", "a report", |report| report.models.is_some())
        .await;
    assert_eq!((report.health, report.waiting), (Some(Health::Ready), Some(4)));
    assert_eq!(
        report.models,
        Some(Models::Listed(vec![ModelEntry::new("llama")]))
    );
}

#[tokio::test]
async fn a_portal_that_answers_everything_is_no_engine() {
    let (url, _server) = plain(|_| (200, "<html>please log in</html>")).await;
    let rig = Rig::http([spec("p", &url)], quick());
    let entry = rig
        .entry("p", "two failures", |entry| entry.failures() >= 2)
        .await;
    assert!(entry.report().is_none());
    let failure = entry.last_failure().unwrap();
    assert_eq!(failure.kind, FailureKind::Unreadable);
    assert!(failure.message.contains("/v1/models answered 200"), "{failure}");
}

#[tokio::test]
async fn an_engine_that_loads_is_not_able_until_it_is_ready() {
    let engine = Engine::start(EngineConfig::llamacpp("tiny")).await.unwrap();
    engine.set_fault(Some(Fault::Loading)).unwrap();
    let rig = Rig::http([spec("a", &engine.url())], quick());
    let report = rig.report("a", "a report while it loads", |_| true).await;
    assert_eq!((report.health, report.models), (Some(Health::Loading), None));
    assert_eq!(report.degraded, [], "there is nothing to say yet");
    assert!(!rig.snapshot().anyone_able());
    engine.set_fault(None).unwrap();
    rig.report("a", "ready", |report| {
        report.health == Some(Health::Ready) && report.models.is_some()
    })
    .await;
    assert!(rig.snapshot().anyone_able());
}

#[tokio::test]
async fn slots_that_are_off_are_said_and_props_tell_their_number() {
    let engine = Engine::start(EngineConfig::llamacpp("tiny").slots(3))
        .await
        .unwrap();
    engine.set_fault(Some(Fault::SlotsOff)).unwrap();
    let rig = Rig::http([spec("a", &engine.url())], quick());
    let report = rig.report("a", "a report", |_| true).await;
    assert_eq!((report.slots_total, report.slots_busy), (Some(3), None));
    assert_eq!(
        (report.running, report.waiting),
        (Some(0), Some(0)),
        "the metrics still tell"
    );
    let degraded: Vec<_> = report
        .degraded
        .iter()
        .map(|one| (one.signal, one.expected.as_str()))
        .collect();
    assert_eq!(degraded, [(Signal::Slots, "/slots")]);
    let entry = rig.entry("a", "a limit", |entry| entry.limit() == Some(3)).await;
    assert_eq!(entry.room(), Some(3));
}

#[tokio::test]
async fn html_where_figures_should_be_makes_them_unknown() {
    let engine = Engine::start(EngineConfig::llamacpp("tiny")).await.unwrap();
    let rig = Rig::http([spec("a", &engine.url())], quick());
    rig.report("a", "a sound report", |report| report.waiting == Some(0))
        .await;
    for path in ["/slots", "/metrics"] {
        engine
            .add_fault(FaultRule::new(Fault::Html).on(Scope::Path(path.into())))
            .unwrap();
    }
    let report = rig
        .report("a", "an unsound report", |report| report.degraded.len() == 3)
        .await;
    assert_eq!(
        (report.running, report.waiting, report.slots_busy),
        (None, None, None)
    );
    assert_eq!(report.health, Some(Health::Ready));
    assert_eq!(
        report.slots_total,
        Some(4),
        "what it has is remembered from when it said so"
    );
    engine.set_fault(None).unwrap();
    rig.report("a", "a sound report again", |report| {
        report.waiting == Some(0) && report.degraded.is_empty()
    })
    .await;
}

#[tokio::test]
async fn models_that_could_not_be_read_are_asked_for_again_at_once() {
    let engine = Engine::start(EngineConfig::llamacpp("tiny")).await.unwrap();
    engine
        .add_fault(
            FaultRule::new(Fault::Html)
                .on(Scope::Path("/v1/models".into()))
                .times(2),
        )
        .unwrap();
    let mut llama = spec("a", &engine.url());
    llama.engine = paddler_core::upstream::Engine::Llamacpp;
    let rig = Rig::http([llama], quick());
    rig.report("a", "models", |report| report.models.is_some()).await;
    assert!(
        engine.stats().by_path["/health"] <= 9,
        "sooner than after ten polls: {:?}",
        engine.stats()
    );
}

#[tokio::test]
async fn two_refused_connections_say_that_nobody_is_there_until_somebody_is() {
    let engine = Engine::start(EngineConfig::llamacpp("tiny")).await.unwrap();
    let port = engine.addr().port();
    let rig = Rig::http([spec("a", &engine.url())], quick());
    rig.report("a", "a report", |_| true).await;
    engine.shutdown().await;
    let entry = rig
        .entry("a", "nobody there", |entry| entry.is_unreachable())
        .await;
    assert!(entry.failures() >= 2);
    assert!(entry.report().is_some(), "what it last said stays, and ages");
    assert!(!rig.snapshot().anyone_able());

    // Another engine comes up there, and another model.
    let _other = Engine::start(EngineConfig::vllm("other").port(port))
        .await
        .unwrap();
    let models = Some(Models::Listed(vec![ModelEntry::new("other")]));
    let report = rig
        .report("a", "what it is now", |report| report.models == models)
        .await;
    assert_eq!((report.slots_total, report.running), (None, Some(0)));
    assert_eq!(report.degraded, [], "it is not taken for what was there before");
    assert!(rig.snapshot().anyone_able());
}

#[tokio::test]
async fn an_engine_too_busy_to_say_how_it_is_is_stale_and_not_broken() {
    let engine = Engine::start(EngineConfig::vllm("m")).await.unwrap();
    let mut options = quick();
    options.timeout = Duration::from_millis(50);
    let rig = Rig::http([spec("a", &engine.url())], options);
    rig.report("a", "a report", |_| true).await;
    engine
        .set_fault(Some(Fault::SlowStatus {
            delay: Duration::from_secs(600),
        }))
        .unwrap();
    let entry = rig
        .entry("a", "three polls in vain", |entry| entry.failures() >= 3)
        .await;
    assert_eq!(entry.last_failure().unwrap().kind, FailureKind::Timeout);
    assert!(!entry.is_unreachable() && entry.report().is_some());
    assert!(rig.snapshot().anyone_able());
    engine.set_fault(None).unwrap();
    rig.entry("a", "heard again", |entry| entry.failures() == 0).await;
}

#[tokio::test]
async fn a_kept_connection_serves_polls() {
    let engine = Engine::start(EngineConfig::vllm("m")).await.unwrap();
    let rig = Rig::http([spec("a", &engine.url())], quick());
    rig.until("ten polls", |_| {
        engine
            .stats()
            .by_path
            .get("/health")
            .is_some_and(|polls| *polls >= 10)
    })
    .await;
    assert!(engine.stats().connections <= 3, "{:?}", engine.stats());
}

#[tokio::test]
async fn nothing_is_left_of_a_loop_that_was_dropped() {
    let engine = Engine::start(EngineConfig::llamacpp("tiny")).await.unwrap();
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let rig = Rig::http([spec("a", &engine.url())], quick());
    rig.report("a", "a report", |_| true).await;
    assert!(tasks() > before && engine.stats().open_connections > 0);
    drop(rig);
    let gone = async {
        while tasks() > before || engine.stats().open_connections > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .expect("tasks or sockets are left");
}
