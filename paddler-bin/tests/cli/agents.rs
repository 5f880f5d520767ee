//! Do engines come and go by their agents: those of Paddler 1.x, and `paddler agent`?

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_METHOD, ALLOW, AUTHORIZATION, ORIGIN,
};
use http::{HeaderName, HeaderValue, Method};
use paddler_engine::{Engine, EngineConfig};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::api::Seen;
use crate::path;
use crate::support::client::{Answer, Ask, Client, ask, chat, eventually, get, post, streamed};
use crate::support::program::{Gateway, Program, address_in, run};
use crate::support::schema::check;

/// The address that recorded streams tell of.
const RECORDED: &str = "127.0.0.1:48080";

async fn engine(model: &str) -> Engine {
    Engine::start(EngineConfig::llamacpp(model).instant())
        .await
        .unwrap()
}

/// A balancer that was started as Paddler 1.x was.
fn balancer(more: &[&str]) -> Gateway {
    let mut args = vec![
        "balancer",
        "--management-addr=127.0.0.1:0",
        "--reverseproxy-addr=localhost:0",
    ];
    args.extend(more);
    let program = Program::start(&args, &[]);
    let address = address_in(&program.logs(|line| line.contains("listening for requests")));
    let management = address_in(&program.logs(|line| line.contains("listening for health")));
    Gateway {
        program,
        address,
        management,
    }
}

/// The head of a recorded request, and its chunks, which tell of the engine there.
fn recorded(name: &str, engine: &Engine) -> (Vec<u8>, Vec<Vec<u8>>) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let bytes = fs::read(file).unwrap();
    let address = engine.url().replace("http://", "");
    assert_eq!(address.len(), RECORDED.len(), "a port of five digits");
    let text = String::from_utf8(bytes).unwrap().replace(RECORDED, &address);
    let (head, mut rest) = text.split_once("\r\n\r\n").unwrap();
    let mut chunks = Vec::new();
    while let Some((length, body)) = rest.split_once("\r\n") {
        let (chunk, more) = body.split_at(usize::from_str_radix(length, 16).unwrap());
        chunks.push(chunk.as_bytes().to_vec());
        rest = more.strip_prefix("\r\n").unwrap();
    }
    (format!("{head}\r\n\r\n").into_bytes(), chunks)
}

async fn write_chunk(to: &mut TcpStream, chunk: &[u8]) {
    let mut bytes = format!("{:x}\r\n", chunk.len()).into_bytes();
    bytes.extend_from_slice(chunk);
    bytes.extend_from_slice(b"\r\n");
    to.write_all(&bytes).await.unwrap();
}

/// The status of the answer, and all that it says.
async fn answer(mut from: TcpStream) -> (u16, String) {
    let mut bytes = vec![0; 8 << 10];
    let mut read = 0;
    while !String::from_utf8_lossy(&bytes[..read]).trim_end().ends_with('}') {
        let more = from.read(&mut bytes[read..]).await.unwrap();
        assert_ne!(more, 0, "{:?}", String::from_utf8_lossy(&bytes[..read]));
        read += more;
    }
    let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
    (text.split_whitespace().nth(1).unwrap().parse().unwrap(), text)
}

async fn agents(management: SocketAddr) -> Vec<Value> {
    let all = ask(management, get("/api/v1/agents")).await.json();
    all["agents"].as_array().unwrap().clone()
}

async fn serves(address: SocketAddr, model: &str) -> bool {
    ask(address, post("/v1/chat/completions", &chat(model, 1)))
        .await
        .is_good()
}

async fn upstream(gateway: &Gateway, id: &str) -> Value {
    ask(gateway.management, get(&format!("/api/v1/upstreams/{id}")))
        .await
        .json()
}

/// `paddler agent` beside an engine, with a beat that is quick enough for a test.
fn agent(engine: &Engine, balancers: &[SocketAddr], more: &[&str]) -> Program {
    let mut args = vec!["agent".to_owned(), format!("--engine-url={}", engine.url())];
    args.extend(
        balancers
            .iter()
            .map(|balancer| format!("--balancer=http://{balancer}")),
    );
    args.extend(["--heartbeat=200ms", "--poll-interval=50ms"].map(str::to_owned));
    args.extend(more.iter().map(|&more| more.to_owned()));
    Program::start(&args, &[])
}

/// What an agent is answered that says this, and then nothing more; `ends`: its stream comes to its end.
async fn answered(management: SocketAddr, path: &str, messages: &[Value], ends: bool) -> Answer {
    let mut stream = spoken(management, path, messages).await;
    if ends {
        stream.write_all(b"0\r\n\r\n").await.unwrap();
    }
    read(stream).await
}

/// The answer, when it has come.
async fn read(stream: TcpStream) -> Answer {
    let text = answer(stream).await.1;
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let mut head = head.split("\r\n");
    let status = head.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = head.map(|line| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.parse().unwrap(), value.parse().unwrap())
    });
    Answer {
        status,
        headers: headers.collect(),
        body: body.into(),
        cut: false,
    }
}

/// A stream over which this was said.
async fn spoken(management: SocketAddr, path: &str, messages: &[Value]) -> TcpStream {
    let mut stream = TcpStream::connect(management).await.unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nhost: {management}\r\ntransfer-encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for message in messages {
        write_chunk(&mut stream, message.to_string().as_bytes()).await;
    }
    stream
}

pub(crate) async fn are_answered_as_documented(gateway: &Gateway, engine: &Engine, seen: &mut Seen) {
    let to = gateway.management;
    let own = "/api/v1/agents/{id}/status";
    let address = engine.url().replace("http://", "");
    let hello = |instance: &str, port: u16| {
        let url = format!("http://127.0.0.1:{port}");
        json!({"version": 1, "instance": instance, "beat_ms": 50, "upstream": {"url": url}, "report": {"health": "ready"}})
    };
    let old = json!({"external_llamacpp_addr": address, "slots_idle": 1, "slots_processing": 0, "is_authorized": true});
    let schemas = &seen.document["components"]["schemas"];
    check(&seen.document, &schemas["AgentMessage"], &hello("one", 1));
    check(&seen.document, &schemas["AgentStatusUpdate"], &old);
    let said = [hello("one", 1), json!({"bye": true})];
    let path = own.replace("{id}", "doc-1");
    seen.check(own, "post", 202, &answered(to, &path, &said, true).await);
    seen.check(own, "post", 408, &answered(to, &path, &said[..1], false).await);
    seen.check(own, "post", 410, &answered(to, &path, &[json!({})], false).await);
    seen.check(
        own,
        "post",
        400,
        &answered(to, &path, &[json!({"beat_ms": "often"})], false).await,
    );
    // Only while the one speaks is the other one refused.
    let path = own.replace("{id}", "doc-2");
    let mut lives = hello("one", 2);
    lives["beat_ms"] = 60_000.into();
    let one = spoken(to, &path, &[lives]).await;
    eventually("it is there", async || !agents(to).await.is_empty()).await;
    let other = answered(to, &path, &[hello("two", 3)], false).await;
    assert!(other.text().contains("--id"), "{other:?}");
    seen.check(own, "post", 409, &other);
    drop(one);
    for path in ["/api/v1/agent_status_update/{id}", "/status_update/{id}"] {
        let at = path.replace("{id}", "0b9e4a52");
        seen.check(
            path,
            "post",
            202,
            &answered(to, &at, std::slice::from_ref(&old), true).await,
        );
        seen.check(path, "post", 400, &answered(to, &at, &[json!({})], false).await);
        // Its rhythm is learnt, and then it says nothing.
        let quick = vec![old.clone(); 4];
        seen.check(path, "post", 408, &answered(to, &at, &quick, false).await);
        let first = spoken(to, &at, std::slice::from_ref(&old)).await;
        eventually("it is there", async || {
            agents(to)
                .await
                .iter()
                .any(|agent| agent["agent_id"] == "0b9e4a52")
        })
        .await;
        let second = spoken(to, &at, std::slice::from_ref(&old)).await;
        seen.check(path, "post", 409, &read(first).await);
        drop(second);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_agents_of_1_x_register_and_are_routed_to() {
    for (file, cut) in [
        ("agent-1.2.1-rc1.http", None),
        ("agent-2025-07.http", None),
        // Not as it was sent: within messages and characters, and several in one.
        ("agent-2025-07.http", Some(7)),
        ("agent-1.2.1-rc1.http", Some(100_000)),
    ] {
        let (engine, gateway) = (engine("m").await, balancer(&[]));
        let (head, mut chunks) = recorded(file, &engine);
        let document = ask(gateway.management, get("/api/v1/openapi.json")).await.json();
        for chunk in &chunks {
            let schema = &document["components"]["schemas"]["AgentStatusUpdate"];
            check(&document, schema, &serde_json::from_slice(chunk).unwrap());
        }
        if let Some(length) = cut {
            chunks = chunks.concat().chunks(length).map(<[u8]>::to_vec).collect();
        }
        let mut stream = TcpStream::connect(gateway.management).await.unwrap();
        stream.write_all(&head).await.unwrap();
        for chunk in &chunks {
            write_chunk(&mut stream, chunk).await;
        }
        let id = engine.url().replace("http://", "");
        eventually("it is there", async || {
            upstream(&gateway, &id).await["health"] == "ready"
        })
        .await;
        for _ in 0..8 {
            assert!(serves(gateway.address, "m").await, "{file}");
        }
        let all = agents(gateway.management).await;
        assert_eq!(all.len(), 1);
        assert_eq!(all[0]["agent_id"], "0b9e4a52-6a8e-4e9c-9f0e-5c1f6f5d2a11");
        let status = &all[0]["status"];
        assert_eq!(
            (&status["agent_name"], &status["slots_idle"]),
            (&json!("Gerät größe"), &json!(4))
        );
        assert_eq!(status["external_llamacpp_addr"], id);

        // It ends itself.
        stream.write_all(b"0\r\n\r\n").await.unwrap();
        assert_eq!(answer(stream).await.0, 202);
        eventually("it has left", async || {
            agents(gateway.management).await.is_empty()
        })
        .await;
        eventually("nobody is there", async || {
            upstream(&gateway, &id).await["error"].is_string()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_says_that_cannot_be_read_is_told_with_its_place() {
    let (engine, gateway) = (engine("m").await, balancer(&[]));
    let (head, chunks) = recorded("agent-2025-07.http", &engine);
    let mut stream = TcpStream::connect(gateway.management).await.unwrap();
    stream.write_all(&head).await.unwrap();
    write_chunk(&mut stream, &chunks[0]).await;
    write_chunk(&mut stream, b"{\"slots_idle\":\"four\"}").await;
    let (status, text) = answer(stream).await;
    assert_eq!(status, 400);
    let at = chunks[0].len();
    let place = format!("message 2, which begins at byte {at}: invalid type: string");
    assert!(text.contains(&place), "{text}");

    let mut wrong = get("/api/v1/agents/x/status");
    *wrong.method_mut() = Method::DELETE;
    let answer = ask(gateway.management, wrong).await;
    assert_eq!(
        (answer.status, answer.headers[ALLOW].to_str().unwrap()),
        (405, "POST")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_tells_two_balancers_and_leaves_in_the_middle_of_a_stream() {
    let slow = EngineConfig::llamacpp("m").prefill_tokens_per_second(f64::INFINITY);
    let slow = Engine::start(slow.decode_tokens_per_second(20.0)).await.unwrap();
    let empty: &[String] = &[];
    let gateways = [
        Gateway::start("gateway", empty, &["--agents=auto"]),
        Gateway::start("balancer", empty, &["--agents=auto"]),
    ];
    let places = [gateways[0].management, gateways[1].management];
    let agent = agent(&slow, &places, &["--name=gpu one", "--label=zone=a"]);
    for gateway in &gateways {
        eventually("it is ready", async || {
            upstream(gateway, "gpu-one").await["health"] == "ready"
        })
        .await;
    }
    agent.logs(|line| line.contains("the balancer listens"));
    let mut client = Client::to(gateways[0].address);
    let mut stream = client
        .send(post("/v1/chat/completions", &streamed(chat("m", 30))))
        .await;
    stream.more().await.unwrap().unwrap();
    agent.signal("TERM");
    for gateway in &gateways {
        eventually("it has left", async || {
            agents(gateway.management).await.is_empty()
        })
        .await;
        eventually("its upstream, too", async || {
            upstream(gateway, "gpu-one").await["error"].is_string()
        })
        .await;
    }
    let ended = agent.ended().await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let whole = stream.whole().await;
    assert!(whole.is_good(), "what it had comes to its end: {whole:?}");
    assert_eq!(slow.stats().completed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_agent_gets_nothing_until_it_thaws() {
    let engine = engine("m").await;
    let gateway = balancer(&["--buffered-request-timeout=5000"]);
    let agent = agent(&engine, &[gateway.management], &["--id=gpu-1"]);
    eventually("it is ready", async || {
        upstream(&gateway, "gpu-1").await["health"] == "ready"
    })
    .await;
    assert!(serves(gateway.address, "m").await);
    agent.signal("STOP");
    eventually("it is stale, or has left", async || {
        let told = upstream(&gateway, "gpu-1").await;
        told["able"] == json!(false) || told["error"].is_string()
    })
    .await;
    let before = engine.stats().completed;
    let wait = HeaderName::from_static("x-paddler-max-wait");
    let asked = with(post("/v1/chat/completions", &chat("m", 1)), wait, "0.2");
    let refused = ask(gateway.address, asked).await;
    assert_eq!(
        refused.status, 503,
        "the engine is there, and its agent says nothing"
    );
    assert_eq!(engine.stats().completed, before);
    agent.signal("CONT");
    eventually("it is back", async || serves(gateway.address, "m").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_agent_with_the_same_id_is_told_to_take_another_and_takes_over_from_a_dead_one() {
    let engines = [engine("m").await, engine("m").await];
    let gateway = balancer(&[]);
    let places = [gateway.management];
    let first = agent(&engines[0], &places, &["--id=gpu-1"]);
    eventually("it is ready", async || {
        upstream(&gateway, "gpu-1").await["health"] == "ready"
    })
    .await;
    let second = agent(&engines[1], &places, &["--id=gpu-1"]);
    let told = second.logs(|line| line.contains("is not told"));
    assert!(told.contains("409") && told.contains("--id"), "{told}");
    gateway
        .program
        .logs(|line| line.contains("a second agent has this id"));
    assert_eq!(upstream(&gateway, "gpu-1").await["url"], engines[0].url());
    // As if its machine were gone: no connection is closed.
    first.signal("STOP");
    eventually("the other one has its place", async || {
        upstream(&gateway, "gpu-1").await["url"] == engines[1].url()
    })
    .await;
    assert!(serves(gateway.address, "m").await);
    assert!(engines[1].stats().completed > 0);
    first.signal("CONT");
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_flaps_leave_no_connection_and_nobody() {
    let (engine, gateway) = (engine("m").await, balancer(&[]));
    let (head, chunks) = recorded("agent-1.2.1-rc1.http", &engine);
    let before = gateway.program.open_files();
    for flap in 0..1_000 {
        let mut stream = TcpStream::connect(gateway.management).await.unwrap();
        stream.write_all(&head).await.unwrap();
        if flap % 3 > 0 {
            write_chunk(&mut stream, &chunks[0]).await;
        }
        if flap % 3 == 2 {
            stream.write_all(b"0\r\n\r\n").await.unwrap();
            // The one before may have been seen to begin after it.
            assert!(matches!(answer(stream).await.0, 202 | 409));
        }
    }
    eventually("all have left", async || {
        agents(gateway.management).await.is_empty()
    })
    .await;
    eventually("no connection is left", async || {
        gateway.program.open_files() <= before + 2
    })
    .await;
    // The board hears of it a moment later.
    eventually("nobody is left", async || {
        let all = ask(gateway.management, get("/api/v1/upstreams")).await.json();
        all["upstreams"] == json!([])
    })
    .await;
}

fn with(mut asked: Ask, name: HeaderName, value: &str) -> Ask {
    asked
        .headers_mut()
        .insert(name, HeaderValue::from_str(value).unwrap());
    asked
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_be_an_agent_is_said_by_keys_and_options() {
    let engine = engine("m").await;
    let speaks = |path: &str| {
        let address = engine.url().replace("http://", "");
        let old = json!({"external_llamacpp_addr": address, "slots_idle": 1, "slots_processing": 0, "is_authorized": true});
        let own = json!({"version": 1, "upstream": {"url": engine.url()}});
        post(path, if path.contains("update") { &old } else { &own })
    };
    let (old, own) = ("/status_update/x", "/api/v1/agents/x/status");
    let status = async |gateway: &Gateway, asked: Ask| ask(gateway.management, asked).await.status;

    let local = balancer(&[]);
    assert_eq!(
        (
            status(&local, speaks(old)).await,
            status(&local, speaks(own)).await
        ),
        (202, 202)
    );
    assert_eq!(
        status(&local, with(speaks(old), ORIGIN, "http://127.0.0.1")).await,
        403,
        "a web page"
    );

    let keys = path("agents.key", "agent-key\n");
    let admin = path("agents-admin.key", "admin-key\n");
    let keyed = [
        format!("--agent-key-file={keys}"),
        format!("--management-key-file={admin}"),
    ];
    let keyed = balancer(&keyed.each_ref().map(String::as_str));
    assert_eq!(
        (
            status(&keyed, speaks(old)).await,
            status(&keyed, speaks(own)).await
        ),
        (401, 401)
    );
    let logged = keyed.program.logs(|line| line.contains("an agent is refused"));
    assert!(logged.contains("--agents open"), "{logged}");
    for (key, expected) in [("agent-key", 202), ("admin-key", 202), ("other", 401)] {
        assert_eq!(
            status(&keyed, with(speaks(own), AUTHORIZATION, &format!("Bearer {key}"))).await,
            expected
        );
    }
    // The key of agents opens nothing else.
    assert_eq!(
        status(
            &keyed,
            with(get("/api/v1/agents"), AUTHORIZATION, "Bearer agent-key")
        )
        .await,
        401
    );

    let open = balancer(&["--agents=open", &format!("--agent-key-file={keys}")]);
    assert_eq!(status(&open, speaks(old)).await, 202);
    let off = Gateway::start("gateway", &[engine.url()], &["--agents=off"]);
    assert_eq!(status(&off, speaks(old)).await, 403);

    let wide = [
        "gateway",
        "--listen=127.0.0.1:0",
        "--management=0.0.0.0:0",
        "--agents=auto",
    ];
    let wide = Program::start(&wide, &[]);
    let mut management = address_in(&wide.logs(|line| line.contains("listening for health")));
    management.set_ip([127, 0, 0, 1].into());
    assert_eq!(ask(management, speaks(own)).await.status, 403, "others reach it");

    // Without a word about agents it is a mistake that nobody is there.
    let ended = run(&["balancer"], &[]).await;
    assert!(
        ended.log.contains("there is no upstream") && ended.log.contains("--agents auto"),
        "{ended:?}"
    );
    let ended = run(&["balancer", "--agents=auto", "--management=off"], &[]).await;
    assert!(ended.log.contains("there is no upstream"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_a_key_comes_in() {
    let (engine, keys) = (engine("m").await, path("agent-comes-in.key", "agent-key\n"));
    let gateway = balancer(&[&format!("--agent-key-file={keys}")]);
    let without = agent(&engine, &[gateway.management], &["--id=gpu-1"]);
    let told = without.logs(|line| line.contains("is not told"));
    assert!(told.contains("401") && told.contains("--token-file"), "{told}");
    let _with = agent(
        &engine,
        &[gateway.management],
        &["--id=gpu-1", &format!("--token-file={keys}")],
    );
    eventually("it is ready", async || {
        upstream(&gateway, "gpu-1").await["health"] == "ready"
    })
    .await;
    assert!(serves(gateway.address, "m").await);
}

/// A certificate for this name by a CA of its own, in files: those of the CA, the certificate and its key.
fn certificate(name: &str, of: &str) -> [String; 3] {
    let made = rcgen::generate_simple_self_signed([of.to_owned()]).unwrap();
    let key = path(&format!("{name}.key"), &made.signing_key.serialize_pem());
    let certificate = path(&format!("{name}.pem"), &made.cert.pem());
    [certificate.clone(), certificate, key]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_and_its_balancer_show_each_other_certificates() {
    let engine = engine("m").await;
    let [balancer_ca, certificate_of_balancer, key] = certificate("agents-balancer", "localhost");
    let [client_ca, own, own_key] = certificate("agents-agent", "agent");
    let tls = format!(
        "{{certificate: {certificate_of_balancer}, key: {key}, client_ca: {client_ca}, client_certificates: required, management: tls}}"
    );
    let config = path(
        "agents-tls.yaml",
        &format!("agents: {{access: auto}}\ntls: {tls}\n"),
    );
    let none: &[String] = &[];
    let gateway = Gateway::start("gateway", none, &["--config", &config]);
    let balancer = format!("--balancer=https://localhost:{}", gateway.management.port());
    let ca = format!("--balancer-ca={balancer_ca}");
    let without = agent(&engine, &[], &[&balancer, &ca]);
    without.logs(|line| line.contains("is not told"));
    let with = [
        &*balancer,
        &ca,
        &format!("--certificate={own}"),
        &format!("--key={own_key}"),
    ];
    let with = agent(&engine, &[], &with);
    with.logs(|line| line.contains("the balancer listens"));
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_allowed_origins_may_ask() {
    let gateway = balancer(&["--management-cors-allowed-host=https://ops.example.com"]);
    let page = |asked: Ask, origin: &str| with(asked, ORIGIN, origin);
    let allowed = async |asked: Ask| {
        let answer = ask(gateway.management, asked).await;
        (
            answer.status,
            answer.headers.get(ACCESS_CONTROL_ALLOW_ORIGIN).cloned(),
        )
    };
    let ops = HeaderValue::from_static("https://ops.example.com");
    let first = |origin: &str| {
        let mut asked = page(get("/api/v1/agents"), origin);
        *asked.method_mut() = Method::OPTIONS;
        with(asked, ACCESS_CONTROL_REQUEST_METHOD, "GET")
    };
    assert_eq!(
        allowed(first("https://ops.example.com")).await,
        (204, Some(ops.clone()))
    );
    assert_eq!(
        allowed(page(get("/api/v1/agents"), "https://ops.example.com")).await,
        (200, Some(ops))
    );
    assert_eq!(allowed(first("https://evil.example.com")).await, (403, None));
    assert_eq!(
        allowed(page(get("/api/v1/agents"), "https://evil.example.com")).await,
        (403, None)
    );
    assert_eq!(allowed(get("/api/v1/agents")).await, (200, None));
    let ended = run(
        &["balancer", "--agents=auto", "--management-origin=ops.example.com"],
        &[],
    )
    .await;
    assert!(
        ended.log.contains("--management-origin") && ended.log.contains("is not the origin of a web page"),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_all_agents_at_each_change() {
    let (engine, gateway) = (engine("m").await, balancer(&[]));
    let mut client = Client::to(gateway.management);
    let mut stream = client.send(get("/api/v1/agents/stream")).await;
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let mut next = async || {
        loop {
            let event = String::from_utf8(stream.more().await.unwrap().unwrap().to_vec()).unwrap();
            if let Some(data) = event.strip_prefix("data: ") {
                return serde_json::from_str::<Value>(data.trim_end()).unwrap();
            }
        }
    };
    assert_eq!(next().await, json!({"agents": []}), "at once");
    let _agent = agent(&engine, &[gateway.management], &["--id=gpu-1"]);
    loop {
        let told = next().await;
        let ready = told["agents"]
            .get(0)
            .is_some_and(|agent| agent["status"]["error"].is_null());
        if ready && told["agents"][0]["agent_id"] == "gpu-1" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_with_agents_a_balancer_each_and_a_gateway_above() {
    let engines = [engine("one").await, engine("two").await];
    let none: &[String] = &[];
    let balancers = [
        Gateway::start("balancer", none, &["--agents=auto"]),
        Gateway::start("balancer", none, &["--agents=auto"]),
    ];
    let _agents = [
        agent(&engines[0], &[balancers[0].management], &["--id=gpu-1"]),
        agent(&engines[1], &[balancers[1].management], &["--id=gpu-2"]),
    ];
    let fleets = balancers
        .each_ref()
        .map(|balancer| format!("paddler://{}", balancer.address));
    let gateway = Gateway::start("gateway", &fleets, &[]);
    for (model, at) in [("one", 0), ("two", 1)] {
        let before = engines[at].stats().completed;
        for body in [chat(model, 3), streamed(chat(model, 3))] {
            let answer = ask(gateway.address, post("/v1/chat/completions", &body)).await;
            assert!(answer.is_good(), "{answer:?}");
        }
        assert_eq!(
            engines[at].stats().completed,
            before + 2,
            "it goes where its model is"
        );
    }
    let unknown = ask(gateway.address, post("/v1/chat/completions", &chat("three", 1))).await;
    assert_eq!(unknown.status, 404);
}
