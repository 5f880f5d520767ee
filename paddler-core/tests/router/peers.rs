//! Whose word counts, and what are upstreams told of where a request comes from?

use std::sync::Arc;
use std::time::Duration;

use paddler_core::config::{Forwarded, Registry, Traceparent, tree_from_yaml};
use paddler_core::forward::Keys;

use super::client::{Answer, CHAT, HANG, ask, chat, eventually, get};
use super::stub::{Do, Stub};
use super::world::{Setup, World, spec};

/// The values of a header in a request as it was sent.
fn values<'r>(request: &'r str, name: &str) -> Vec<&'r str> {
    let lines = request.split("\r\n").take_while(|line| !line.is_empty());
    lines
        .filter_map(|line| line.split_once(": "))
        .filter(|(known, _)| known.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
        .collect()
}

async fn send(world: &World, headers: &str) -> Answer {
    ask(world.addr, "POST", CHAT, headers, chat(1).to_string()).await
}

fn trusting(setup: Setup) -> Setup {
    setup.with(|setup| setup.options.trusted_peers = vec!["127.0.0.0/8".parse().unwrap()])
}

/// Sheds what may be shed.
fn shedding(setup: Setup) -> Setup {
    let text =
        "tree:\n  when: critical\n  then: {pick: random}\n  else: {reject: {class: shed, reason: not_now}}\n";
    setup.with(|setup| {
        setup.tree = tree_from_yaml(text, "test", &Registry::new()).unwrap();
    })
}

#[tokio::test]
async fn the_priority_counts_from_trusted_peers_alone() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let sheddable = "x-paddler-priority: sheddable\r\n";
    let world = shedding(trusting(Setup::new()))
        .start([spec("a", &stub.url)])
        .await;
    assert_eq!(send(&world, sheddable).await.status, 429);
    assert_eq!(send(&world, "x-paddler-priority: -3\r\n").await.status, 429);
    assert_eq!(send(&world, "x-paddler-priority: critical\r\n").await.status, 200);
    assert_eq!(
        values(&stub.seen()[0], "x-paddler-priority"),
        ["critical"],
        "for a router behind us"
    );
    let wrong = send(&world, "x-paddler-priority: urgent\r\n").await;
    assert_eq!((wrong.status, wrong.reason()), (400, "bad_header"));
    assert!(wrong.text().contains("x-paddler-priority"), "{}", wrong.text());
    world.quiet().await;

    let world = shedding(Setup::new()).start([spec("a", &stub.url)]).await;
    for said in [
        sheddable,
        "x-paddler-priority: urgent\r\nx-paddler-tenant: me\r\n",
    ] {
        assert_eq!(send(&world, said).await.status, 200);
        let seen = stub.seen().pop().unwrap();
        assert!(
            !seen.contains("x-paddler"),
            "nobody behind us believes it: {seen}"
        );
    }
    world.quiet().await;
}

/// Notes whose request it was.
#[derive(Debug, Default)]
struct Tenants(std::sync::Mutex<Vec<Option<Arc<str>>>>);

impl paddler_core::forward::Annotate for Tenants {
    fn annotate(&self, _: &http::HeaderMap, facts: &mut paddler_core::request::RequestFacts) {
        self.0.lock().unwrap().push(facts.tenant.clone());
    }
}

#[tokio::test]
async fn the_tenant_counts_from_trusted_peers_alone() {
    let stub = Stub::start([Do::ok("{}")]).await;
    for (trusted, tenant) in [(true, Some("red")), (false, None)] {
        let tenants = Arc::new(Tenants::default());
        let noted = tenants.clone();
        let setup = if trusted {
            trusting(Setup::new())
        } else {
            Setup::new()
        };
        let setup = setup.with(|setup| setup.options.annotate = Some(noted));
        let world = setup.start([spec("a", &stub.url)]).await;
        assert_eq!(send(&world, "x-paddler-tenant: red\r\n").await.status, 200);
        let noted = tenants.0.lock().unwrap().pop().unwrap();
        assert_eq!(noted.as_deref(), tenant, "trusted: {trusted}");
        world.quiet().await;
    }
}

const CLAIMS: &str =
    "x-forwarded-for: 203.0.113.9\r\nforwarded: for=203.0.113.9\r\nx-real-ip: 203.0.113.9\r\n";

#[tokio::test]
async fn an_upstream_is_told_the_clients_address_where_that_is_wanted() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let told = async |trusted: bool, form: Forwarded| {
        let setup = if trusted {
            trusting(Setup::new())
        } else {
            Setup::new()
        };
        let setup = setup.with(|setup| setup.options.forwarding.forwarded = form);
        let world = setup.start([spec("a", &stub.url)]).await;
        assert_eq!(send(&world, CLAIMS).await.status, 200);
        let seen = stub.seen().pop().unwrap();
        let values = |name| values(&seen, name).join("; ");
        (
            values("x-forwarded-for"),
            values("forwarded"),
            values("x-real-ip"),
        )
    };
    let claimed = "203.0.113.9";
    let (forwarded, ours) = (
        format!("for={claimed}"),
        "for=127.0.0.1;host=\"router\";proto=http",
    );
    let all = (claimed.to_owned(), forwarded.clone(), claimed.to_owned());
    assert_eq!(told(true, Forwarded::Off).await, all);
    assert_eq!(told(false, Forwarded::Off).await, Default::default());
    let ours_alone = ("127.0.0.1".to_owned(), ours.to_owned(), String::new());
    assert_eq!(told(false, Forwarded::Both).await, ours_alone);
    let one_more = (
        format!("{claimed}, 127.0.0.1"),
        format!("{forwarded}, {ours}"),
        claimed.to_owned(),
    );
    assert_eq!(told(true, Forwarded::Both).await, one_more);
}

#[tokio::test]
async fn each_request_has_an_id_upstream_and_for_the_client() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let kept = send(&world, "x-request-id: client-7\r\n").await;
    assert_eq!(kept.header("x-request-id"), Some("client-7"));
    assert_eq!(values(&stub.seen()[0], "x-request-id"), ["client-7"]);
    let mut made = Vec::new();
    for headers in [
        "",
        "x-request-id: a b\r\n",
        "x-request-id: a\r\nx-request-id: b\r\n",
        "connection: x-request-id\r\n",
    ] {
        let answer = send(&world, headers).await;
        let id = answer.header("x-request-id").unwrap().to_owned();
        assert_eq!(values(stub.seen().last().unwrap(), "x-request-id"), [id.as_str()]);
        assert!(
            id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{id}"
        );
        made.push(id);
    }
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 4, "each has its own");
    let refused = ask(world.addr, "POST", CHAT, "x-request-id: r\r\n", "no JSON").await;
    assert_eq!((refused.status, refused.header("x-request-id")), (400, Some("r")));
    let health = ask(world.addr, "GET", "/health", "x-request-id: h\r\n", "").await;
    assert_eq!(health.header("x-request-id"), Some("h"));
    world.quiet().await;
}

#[tokio::test]
async fn an_upstreams_own_id_is_not_lost() {
    let stub = Stub::start([Do::say(
        "HTTP/1.1 200 OK\r\nx-request-id: theirs\r\ncontent-length: 2\r\n\r\n{}",
    )])
    .await;
    let world = Setup::new().start([spec("a", &stub.url)]).await;
    let answer = send(&world, "x-request-id: ours\r\n").await;
    assert_eq!(answer.header("x-request-id"), Some("ours"));
    assert_eq!(answer.header("x-upstream-request-id"), Some("theirs"));
}

#[tokio::test]
async fn a_trace_goes_on_if_it_is_one() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (make, without) in [(Traceparent::Pass, 0), (Traceparent::Make, 1)] {
        let setup = Setup::new().with(|setup| setup.options.forwarding.traceparent = make);
        let world = setup.start([spec("a", &stub.url)]).await;
        let sent = async |headers: &str| {
            send(&world, headers).await;
            stub.seen().pop().unwrap()
        };
        let kept = sent(&format!("traceparent: {trace}\r\ntracestate: a=1\r\n")).await;
        assert_eq!(values(&kept, "traceparent"), [trace]);
        assert_eq!(values(&kept, "tracestate"), ["a=1"]);
        for headers in ["", "traceparent: 00-bad\r\ntracestate: a=1\r\n"] {
            let seen = sent(headers).await;
            assert_eq!(values(&seen, "traceparent").len(), without, "{headers}");
            assert!(values(&seen, "tracestate").is_empty());
        }
    }
}

#[tokio::test]
async fn a_router_that_leads_back_to_itself_is_a_loop() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let world = Setup::new().start([spec("itself", url)]).await;
    // Whatever comes there is carried back.
    let back = world.addr;
    let carrying = tokio::spawn(async move {
        loop {
            let (mut from, _) = listener.accept().await.unwrap();
            let mut to = tokio::net::TcpStream::connect(back).await.unwrap();
            tokio::spawn(async move { drop(tokio::io::copy_bidirectional(&mut from, &mut to).await) });
        }
    });
    let answer = tokio::time::timeout(HANG, send(&world, "")).await.unwrap();
    assert_eq!((answer.status, answer.reason()), (508, "loop"));
    eventually("it took as many rounds", || {
        world.metric("paddler_requests_total") == 3.0
    })
    .await;
    carrying.abort();
    world.quiet().await;
}

#[tokio::test]
async fn routers_in_a_row_are_no_loop() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let mut worlds = Vec::new();
    let mut next = stub.url.clone();
    for _ in 0..4 {
        let world = Setup::new().start([spec("next", &next)]).await;
        next = format!("http://{}", world.addr);
        worlds.push(world);
    }
    let answer = ask(
        worlds[3].addr,
        "POST",
        CHAT,
        "x-request-id: far\r\n",
        chat(1).to_string(),
    )
    .await;
    assert_eq!((answer.status, answer.header("x-request-id")), (200, Some("far")));
    let seen = &stub.seen()[0];
    assert_eq!(values(seen, "via").len(), 4, "{seen}");
    assert_eq!(values(seen, "x-request-id"), ["far"]);
}

#[tokio::test]
async fn the_routers_keys_are_asked_for_whoever_the_peer_is() {
    let stub = Stub::start([Do::ok("{}")]).await;
    let setup = trusting(Setup::new()).with(|setup| {
        setup.options.keys = Some(Arc::new(Keys::read("sk-1").unwrap()));
        setup.options.timeouts.body_idle = Duration::from_secs(5);
    });
    let world = setup.start([spec("a", &stub.url)]).await;
    assert_eq!(send(&world, "x-paddler-priority: critical\r\n").await.status, 401);
    assert_eq!(get(world.addr, "/health").await.status, 200);
}
