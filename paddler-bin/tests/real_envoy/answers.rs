//! What a client gets.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;

use super::envoy::{Example, World, engine, envoy};
use super::servers::servers;
use super::support::client::{ask, chat, eventually, get, post, streamed};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_llama_cpp_and_simulated_engines_are_what_they_are_without_envoy() {
    let Some(envoy) = envoy() else { return };
    let Some(servers) = servers().await else { return };
    let simulated = engine().await;
    let upstreams = [servers.a[0].address, servers.a[1].address, simulated.addr()];
    let world = World::start(
        &envoy,
        Example::OriginalDst,
        &upstreams,
        &["--fallbacks=0"],
        |text| text,
    )
    .await;
    for body in [
        chat("tiny-a", 16),
        streamed(chat("tiny-a", 16)),
        chat("tiny", 8),
        streamed(chat("tiny", 8)),
    ] {
        let at = if body["model"] == "tiny" {
            upstreams[2]
        } else {
            upstreams[0]
        };
        let direct = ask(at, post(CHAT, &body)).await;
        for _ in 0..6 {
            let through = world.ask(post(CHAT, &body)).await;
            assert!(direct.is_good() && through.is_good(), "{through:?}");
            assert_eq!(through.headers["content-type"], direct.headers["content-type"]);
            assert_eq!(words(through.text()), words(direct.text()));
        }
    }
    world.quiet().await;
    assert_eq!(world.figure("paddler_upstream_ejected").await, 0.0);
    assert_eq!(world.figure("paddler_picker_faults_total").await, 0.0);
}

/// What an answer says, without ids and times.
fn words(text: &str) -> String {
    let events = text.lines().map(|line| line.trim_start_matches("data: "));
    let said = events.filter_map(|event| serde_json::from_str::<serde_json::Value>(event).ok());
    let content = said.map(|event| {
        let choice = &event["choices"][0];
        let message = choice["message"]["content"]
            .as_str()
            .or(choice["delta"]["content"].as_str());
        message.unwrap_or_default().to_owned()
    });
    content.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_a_mebibyte_gets_there_byte_for_byte() {
    let Some(envoy) = envoy() else { return };
    let (a, b) = (engine().await, engine().await);
    for (mode, example) in [
        ("FULL_DUPLEX_STREAMED", Example::OriginalDst),
        ("BUFFERED", Example::OverrideHost),
    ] {
        let edit = |text: String| {
            let text = text.replace(
                "request_body_mode: FULL_DUPLEX_STREAMED",
                &format!("request_body_mode: {mode}"),
            );
            // Envoy buffers a MiB unless told otherwise.
            text.replace(
                "- name: main\n",
                "- name: main\n    per_connection_buffer_limit_bytes: 4194304\n",
            )
        };
        let more: &[&str] = if example == Example::OriginalDst {
            &["--fallbacks=0"]
        } else {
            &[]
        };
        let world = World::start(&envoy, example, &[a.addr(), b.addr()], more, edit).await;
        let mut body = chat("tiny", 1);
        body["messages"][0]["content"] = "Ünicode ".repeat(130_000).into();
        // Else it would be refused: it is longer than the engines' context.
        body["truncate_prompt_tokens"] = 8.into();
        let request = post("/v1/chat/completions", &body);
        let answer = world.ask(request).await;
        let records = [a.last_request(), b.last_request()];
        let got = records
            .into_iter()
            .flatten()
            .find(|got| got.path == CHAT && got.body.len() > 1 << 20);
        let got = got.unwrap_or_else(|| panic!("{mode}: {} {}", answer.status, answer.text()));
        assert_eq!(got.body, body.to_string(), "{mode}");
        assert_eq!(got.headers["content-length"], body.to_string().len().to_string());
        assert_eq!(got.headers["x-gateway-model-name"], "tiny");
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_the_routers_own_answers_reach_the_client() {
    let Some(envoy) = envoy() else { return };
    let engine = engine().await;
    let world = World::start(
        &envoy,
        Example::OriginalDst,
        &[engine.addr()],
        &["--fallbacks=0"],
        |text| text,
    )
    .await;
    for (path, body, status, reason) in [
        (CHAT, json!([1]), 400, "malformed_body"),
        (CHAT, chat("nobody-has-it", 1), 404, "model_not_found"),
        ("/slots", json!({}), 403, "admin_path"),
    ] {
        let answer = world.ask(post(path, &body)).await;
        assert_eq!(
            (
                answer.status,
                answer.headers["x-paddler-reason"].to_str().unwrap()
            ),
            (status, reason)
        );
        assert_eq!(answer.json()["error"]["code"].as_str().unwrap_or(reason), reason);
    }
    let models = world.ask(get("/v1/models")).await;
    assert_eq!(
        (models.status, models.json()["data"][0]["id"].as_str()),
        (200, Some("tiny"))
    );
    let unknown = world.ask(get("/nothing/here")).await;
    assert_eq!(unknown.status, 404);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_model_than_the_client_names_is_asked_for_by_the_body() {
    let Some(envoy) = envoy() else { return };
    let engine = engine().await;
    for mode in ["FULL_DUPLEX_STREAMED", "BUFFERED"] {
        let edit = |text: String| {
            text.replace(
                "request_body_mode: FULL_DUPLEX_STREAMED",
                &format!("request_body_mode: {mode}"),
            )
        };
        let world = World::start(
            &envoy,
            Example::OriginalDst,
            &[engine.addr()],
            &["--fallbacks=0"],
            edit,
        )
        .await;
        let mut request = post(CHAT, &chat("a-name-of-the-gateways", 1));
        request
            .headers_mut()
            .insert("x-gateway-model-name-rewrite", "tiny".parse().unwrap());
        let answer = world.ask(request).await;
        assert!(answer.is_good(), "{mode}: {answer:?}");
        let got = engine.last_request().unwrap();
        assert_eq!(got.body, chat("tiny", 1).to_string());
        assert_eq!(got.headers["content-length"], got.body.len().to_string());
        assert!(!got.headers.contains_key("x-gateway-model-name-rewrite"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_ends_its_request_and_its_lease() {
    let Some(envoy) = envoy() else { return };
    let slow = paddler_engine::EngineConfig::llamacpp("tiny").decode_tokens_per_second(5.0);
    let engine = paddler_engine::Engine::start(slow).await.unwrap();
    let world = World::start(
        &envoy,
        Example::OriginalDst,
        &[engine.addr()],
        &["--fallbacks=0"],
        |text| text,
    )
    .await;
    let mut client = world.client();
    let mut reply = client.send(post(CHAT, &streamed(chat("tiny", 500)))).await;
    reply.more().await.unwrap().unwrap();
    assert_eq!(world.figure("paddler_upstream_open_weight").await, 1.0);
    drop((reply, client));
    eventually("the engine is free", async || engine.stats().running == 0).await;
    world.quiet().await;
    assert_eq!(world.figure("paddler_upstream_ejected").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_in_the_queue_is_not_late_for_envoy() {
    let Some(envoy) = envoy() else { return };
    let slow = paddler_engine::EngineConfig::llamacpp("tiny")
        .slots(1)
        .decode_tokens_per_second(20.0);
    let engine = paddler_engine::Engine::start(slow).await.unwrap();
    for (mode, patience) in [("FULL_DUPLEX_STREAMED", "0.1s"), ("BUFFERED", "30s")] {
        let edit = |text: String| {
            let text = text.replace("message_timeout: 30s", &format!("message_timeout: {patience}"));
            text.replace(
                "request_body_mode: FULL_DUPLEX_STREAMED",
                &format!("request_body_mode: {mode}"),
            )
        };
        let upstreams = [engine.addr()];
        let world = World::start(&envoy, Example::OriginalDst, &upstreams, &["--fallbacks=0"], edit).await;
        let body = chat("tiny", 20);
        let (first, second) = tokio::join!(world.ask(post(CHAT, &body)), world.ask(post(CHAT, &body)));
        assert!(
            first.is_good() && second.is_good(),
            "{mode}: {first:?} {second:?}"
        );
        assert_eq!(engine.stats().max_running, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_addresses_is_more_than_original_dst_takes() {
    let Some(envoy) = envoy() else { return };
    let (a, b) = (engine().await, engine().await);
    let both: [SocketAddr; 2] = [a.addr(), b.addr()];
    let world = World::start(&envoy, Example::OriginalDst, &both, &[], |text| text).await;
    let answer = world.ask(post(CHAT, &chat("tiny", 1))).await;
    assert_eq!((answer.status, answer.text()), (503, "no healthy upstream"));
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_asks_over_tls_and_shows_who_it_is() {
    let Some(envoy) = envoy() else { return };
    let engine = engine().await;
    let [own, of_envoy] = ["picker", "envoy"].map(certificate);
    let config = format!(
        "tls: {{certificate: {}, key: {}, client_ca: {}}}\n",
        own.0, own.1, of_envoy.0
    );
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real_envoy_tls.yaml");
    std::fs::write(&file, config).unwrap();
    let config = format!("--config={}", file.display());
    let edit = |text: String| {
        let of_picker = "    load_assignment:\n      cluster_name: picker\n";
        assert!(text.contains(of_picker));
        let tls = format!(
            "    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: localhost
        common_tls_context:
          tls_certificates: [{{certificate_chain: {{filename: {}}}, private_key: {{filename: {}}}}}]
          validation_context: {{trusted_ca: {{filename: {}}}}}
",
            of_envoy.0, of_envoy.1, own.0
        );
        text.replace(of_picker, &(tls + of_picker))
    };
    let world = World::start(
        &envoy,
        Example::OriginalDst,
        &[engine.addr()],
        &["--fallbacks=0", &config],
        edit,
    )
    .await;
    let answer = world.ask(post(CHAT, &chat("tiny", 4))).await;
    assert!(answer.is_good(), "{answer:?}");
    assert_eq!(world.figure("paddler_picker_streams_total").await, 1.0);
    world.quiet().await;
}

/// The files of a certificate that signs itself, and of its key.
fn certificate(name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let texts = [
        ("pem", made.cert.pem()),
        ("key", made.signing_key.serialize_pem()),
    ];
    let [certificate, key] = texts.map(|(kind, text)| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("real_envoy_{name}.{kind}"));
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    });
    (certificate, key)
}
