//! Does another model serve a request whose own has no place, and only then?

use std::sync::Arc;
use std::time::Duration;

use paddler_core::forward::{Authorise, Client as Key};
use paddler_core::request::{ModelRule, ModelRules, RequestFacts};
use paddler_core::status::StatusEvent;
use paddler_core::upstream::http::UpstreamKey;
use paddler_core::upstream::{
    Abilities, Capability, Engine, ModelEntry, Models, Traffic, UpstreamId, UpstreamSpec,
};
use serde_json::{Value, json};

use super::client::{Answer, CHAT, Client, HANG, ask, eventually, get, of_model, post};
use super::stub::{Do, Stub};
use super::world::{Setup, World, nowhere, spec};

const SHORT: Duration = Duration::from_millis(60);

/// A request for `big` waits so long, and then asks for `small`, and then for `hosted`.
fn rule(patience: Duration) -> ModelRule {
    let mut rule = ModelRule::default().or_else(["small", "hosted"]);
    rule.patience = Some(patience);
    rule
}

fn with(rules: impl IntoIterator<Item = (&'static str, ModelRule)>) -> Setup {
    let rules = ModelRules::new(rules).unwrap();
    Setup::new()
        .queue(9, HANG)
        .with(|setup| setup.options.models = Arc::new(rules))
}

fn serves(model: &str, url: &str) -> UpstreamSpec {
    let models = Models::Listed([ModelEntry::new(model)].into());
    spec(model, url).models(models).max_in_flight(1)
}

/// One upstream for each, with room for one request.
async fn each(setup: Setup, stubs: &[(&str, &Stub)]) -> World {
    let specs = stubs.iter().map(|(model, stub)| serves(model, &stub.url));
    setup.start(specs.collect::<Vec<_>>()).await
}

/// Takes the place of whoever serves this model, until it is dropped.
async fn occupy(world: &World, stub: &Stub, model: &str) -> Client {
    let before = stub.seen().len();
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &of_model(model)).await;
    eventually("it is there", || stub.seen().len() == before + 1).await;
    client
}

async fn ok() -> Stub {
    Stub::start([Do::ok("{}")]).await
}

/// The first one stays for ever, and all others are answered.
async fn first_stays() -> Stub {
    Stub::start([Do::Stall, Do::ok("{}")]).await
}

fn fallback(answer: &Answer) -> Option<&str> {
    answer.header("x-paddler-fallback")
}

/// The model and the length that the last request has told this one.
fn told(stub: &Stub) -> String {
    let request = stub.seen().pop().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let length = format!("content-length: {}", body.len());
    assert!(
        head.to_ascii_lowercase().lines().any(|line| line == length),
        "{head}"
    );
    serde_json::from_str::<Value>(body).unwrap()["model"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_can_serve_its_own_model_the_next_one_is_asked_at_once() {
    let (small, hosted) = (ok().await, ok().await);
    // Nobody has it; whoever has it cannot be reached.
    for own in [None, Some(serves("big", &nowhere().await))] {
        let specs = [serves("hosted", &hosted.url), serves("small", &small.url)];
        let world = with([("big", rule(HANG * 10))])
            .start(specs.into_iter().chain(own))
            .await;
        let body = "{ \"n\":1,\n\t\"model\" :\"b\\u0069g\", \"x\": [1.0e3], \"Model\":\"big\" }";
        for _ in 0..2 {
            let answer = ask(
                world.addr,
                "POST",
                CHAT,
                "content-type: application/json\r\n",
                body,
            )
            .await;
            assert_eq!(
                (answer.status, fallback(&answer)),
                (200, Some("small")),
                "{}",
                answer.text()
            );
            let seen = small.seen().pop().unwrap();
            let expected = "{ \"n\":1,\n\t\"model\" :\"small\", \"x\": [1.0e3], \"Model\":\"small\" }";
            assert!(seen.ends_with(&format!("\r\n\r\n{expected}")), "{seen}");
            assert!(
                seen.to_ascii_lowercase()
                    .contains(&format!("content-length: {}\r\n", expected.len())),
                "{seen}"
            );
        }
        assert_eq!(world.metric("paddler_fallbacks_total"), 2.0);
        let counted = r#"paddler_fallbacks_total{model="big",to="small"} 2"#;
        assert!(world.router.metrics_page().contains(counted));
        world.quiet().await;
    }
    assert!(hosted.seen().is_empty(), "the second was good enough");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_model_is_waited_for_as_long_as_its_patience_is() {
    for (patience, by) in [(Duration::ZERO, "small"), (SHORT, "small"), (HANG * 10, "big")] {
        let (big, small) = (first_stays().await, ok().await);
        let world = each(
            with([("big", rule(patience))]),
            &[("big", &big), ("small", &small)],
        )
        .await;
        let first = occupy(&world, &big, "big").await;
        let mut second = Client::connect(world.addr).await;
        second.post(CHAT, &of_model("big")).await;
        if by == "big" {
            eventually("it waits", || world.waiting() == 1).await;
            drop(first);
            let answer = second.answer().await;
            assert_eq!((answer.status, fallback(&answer)), (200, None));
            assert_eq!((told(&big).as_str(), small.seen().len()), ("big", 0));
        } else {
            let answer = second.answer().await;
            assert_eq!(
                (answer.status, fallback(&answer)),
                (200, Some("small")),
                "{patience:?}"
            );
            assert_eq!((told(&small).as_str(), big.seen().len()), ("small", 1));
            drop(first);
        }
        world.quiet().await;
        // What is idle is not gone round, however little patience there is.
        let answer = post(world.addr, CHAT, &of_model("big")).await;
        assert_eq!((answer.status, fallback(&answer)), (200, None), "{patience:?}");
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_one_that_has_a_place_serves_it_and_where_none_has_its_own_says_so() {
    let stubs = [first_stays().await, first_stays().await, first_stays().await];
    let [big, small, hosted] = &stubs;
    let setup = with([("big", rule(SHORT))]).queue(9, SHORT * 10);
    let world = each(setup, &[("big", big), ("small", small), ("hosted", hosted)]).await;
    let mut held = vec![
        occupy(&world, big, "big").await,
        occupy(&world, small, "small").await,
    ];
    // All of `hosted` from now on.
    held.push(occupy(&world, hosted, "hosted").await);
    let refused = post(world.addr, CHAT, &of_model("big")).await;
    assert_eq!(
        (refused.status, refused.reason(), fallback(&refused)),
        (429, "slots_busy", None)
    );
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("every upstream for the model \"big\" is busy (slots_busy), also after waiting "),
        "{message}"
    );
    assert!(
        message.ends_with("; asked for as well: \"small\" (slots_busy), \"hosted\" (slots_busy)"),
        "{message}"
    );
    held.pop();
    eventually("hosted is free", || world.open_weight() == 2).await;
    let third = post(world.addr, CHAT, &of_model("big")).await;
    assert_eq!((third.status, fallback(&third)), (200, Some("hosted")));
    assert_eq!(told(hosted), "hosted");
    let page = world.router.metrics_page();
    assert!(
        page.contains(r#"paddler_fallbacks_total{model="big",to="hosted"} 1"#),
        "{page}"
    );
    assert!(!page.contains(r#"to="small""#), "nothing was sent there");
    drop(held);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_upstream_refuses_or_loses_may_be_served_by_another_model() {
    let say = |status: &str| Do::say(&format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n"));
    for (does, alone, falls_back) in [
        (say("503 Service Unavailable"), 503, true),
        (say("429 Too Many Requests"), 429, true),
        (say("502 Bad Gateway"), 502, true),
        (Do::Close, 502, true),
        (say("500 Internal Server Error"), 500, false),
        (say("404 Not Found"), 404, false),
    ] {
        let (big, small) = (Stub::start([does]).await, ok().await);
        let setup = || with([("big", rule(HANG * 10))]).queue(0, SHORT);
        let world = each(setup(), &[("big", &big), ("small", &small)]).await;
        let answer = post(world.addr, CHAT, &of_model("big")).await;
        let expected = if falls_back {
            (200, Some("small"))
        } else {
            (alone, None)
        };
        assert_eq!((answer.status, fallback(&answer)), expected);
        assert_eq!(
            (big.seen().len(), small.seen().len()),
            (1, usize::from(falls_back)),
            "{alone}"
        );
        world.quiet().await;
        // Where nobody has the others either, it is as its own upstream has said.
        let world = each(setup(), &[("big", &big)]).await;
        let refused = post(world.addr, CHAT, &of_model("big")).await;
        assert_eq!(
            (refused.status, fallback(&refused)),
            (alone, None),
            "{}",
            refused.text()
        );
        world.quiet().await;
    }
    // Nobody knows what was done of a request that is no repetition: it is not sent once more, wherever to.
    let (big, small) = (Stub::start([Do::Close]).await, ok().await);
    let world = each(with([("big", rule(SHORT))]), &[("big", &big), ("small", &small)]).await;
    let mut stored = of_model("big");
    stored["store"] = json!(true);
    let answer = post(world.addr, CHAT, &stored).await;
    assert_eq!(
        (answer.status, answer.reason(), small.seen().len()),
        (502, "upstream_broke", 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_retries_one_attempt_at_each_model_is_made() {
    let refuses = || Do::say("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    let (big, other, small) = (
        Stub::start([refuses()]).await,
        Stub::start([refuses()]).await,
        ok().await,
    );
    let big_too = {
        let mut spec = serves("big", &other.url);
        spec.id = UpstreamId::new("big-2").unwrap();
        spec
    };
    let setup = with([("big", rule(HANG * 10))]).with(|setup| setup.options.retry.attempts = 1);
    let world = setup
        .start([serves("big", &big.url), big_too, serves("small", &small.url)])
        .await;
    let answer = post(world.addr, CHAT, &of_model("big")).await;
    assert_eq!((answer.status, fallback(&answer)), (200, Some("small")));
    assert_eq!(big.seen().len() + other.seen().len(), 1);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leaves_while_his_model_is_waited_for_leaves_nothing_behind() {
    let (big, small) = (first_stays().await, first_stays().await);
    let world = each(with([("big", rule(SHORT))]), &[("big", &big), ("small", &small)]).await;
    let (first, second) = (
        occupy(&world, &big, "big").await,
        occupy(&world, &small, "small").await,
    );
    for _ in 0..20 {
        let mut waits = Client::connect(world.addr).await;
        waits.post(CHAT, &of_model("big")).await;
        eventually("it waits", || world.waiting() == 1).await;
        drop(waits);
        eventually("it is out", || world.waiting() == 0).await;
    }
    assert_eq!(
        (world.open_weight(), big.seen().len(), small.seen().len()),
        (2, 1, 1)
    );
    drop((first, second));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_and_its_name_are_those_of_who_answers_unless_the_name_is_to_be_put_in() {
    let said = "data: {\"model\":\"small\"}\n\ndata: [DONE]\n\n";
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n",
        said.len()
    );
    for (asked, rewrites) in [("big", false), ("big", true), ("alias", true)] {
        let small = Stub::start([Do::say(&format!("{head}{said}"))]).await;
        let mut rule = if asked == "alias" {
            ModelRule::alias("big")
        } else {
            ModelRule::default()
        };
        rule = rule.or_else(["small"]);
        rule.settings.rewrite_response = Some(rewrites);
        let world = each(with([(asked, rule)]), &[("small", &small)]).await;
        let mut body = of_model(asked);
        body["stream"] = json!(true);
        let answer = post(world.addr, CHAT, &body).await;
        let expected = if rewrites {
            said.replace("small", asked)
        } else {
            said.to_owned()
        };
        assert_eq!((answer.text(), fallback(&answer)), (&*expected, Some("small")));
        assert_eq!(told(&small), "small");
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_of_a_form_is_another_too() {
    let form = |model: &str| {
        let file = "RIFF ".repeat(10_000);
        format!(
            "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n--x\r\nContent-Disposition: form-data; \
             name=\"file\"; filename=\"a.wav\"\r\n\r\n{file}\r\n--x--\r\n"
        )
    };
    let small = ok().await;
    let world = each(
        with([("whisper-large", ModelRule::default().or_else(["small"]))]),
        &[("small", &small)],
    )
    .await;
    let headers = "content-type: multipart/form-data; boundary=x\r\n";
    let answer = ask(
        world.addr,
        "POST",
        "/v1/audio/transcriptions",
        headers,
        &form("whisper-large"),
    )
    .await;
    assert_eq!(
        (answer.status, fallback(&answer)),
        (200, Some("small")),
        "{}",
        answer.text()
    );
    let seen = small.seen().pop().unwrap();
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    assert!(body == form("small"));
    assert!(
        head.to_ascii_lowercase()
            .contains(&format!("content-length: {}\r\n", body.len()))
    );
    world.quiet().await;
}

/// Everybody, as this one.
#[derive(Debug)]
struct Everybody(Arc<Key>);

impl Authorise for Everybody {
    fn client(&self, _key: &[u8]) -> Option<Arc<Key>> {
        Some(self.0.clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_opens_a_model_opens_what_serves_it_under_that_name_alone() {
    let small = ok().await;
    let mut key = Key::new("a");
    key.models = Some([Arc::from("big")].into());
    let setup = with([("big", rule(SHORT))])
        .with(|setup| setup.options.keys = Some(Arc::new(Everybody(Arc::new(key)))));
    let world = each(setup, &[("small", &small)]).await;
    for (model, expected) in [("big", 200), ("small", 403)] {
        let headers = "authorization: Bearer k\r\nx-api-key: k\r\ncontent-type: application/json\r\n";
        let answer = ask(
            world.addr,
            "POST",
            CHAT,
            headers,
            of_model(model).to_string().as_str(),
        )
        .await;
        assert_eq!(answer.status, expected, "{model}: {}", answer.text());
    }
    let seen = small.seen().pop().unwrap().to_ascii_lowercase();
    assert!(
        !seen.contains("bearer") && !seen.contains("x-api-key"),
        "his key is for us: {seen}"
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_model_cannot_do_it_does_not_do_for_others() {
    let (small, hosted) = (ok().await, ok().await);
    let setup = with([("big", rule(HANG * 10))]);
    let blind = serves("small", &small.url).abilities(Abilities::only([Capability::Chat]));
    let world = setup.start([blind, serves("hosted", &hosted.url)]).await;
    let mut body = of_model("big");
    body["messages"] = json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]);
    let answer = post(world.addr, CHAT, &body).await;
    assert_eq!(
        (answer.status, fallback(&answer)),
        (200, Some("hosted")),
        "{}",
        answer.text()
    );
    body["messages"] = json!([{"role": "user", "content": "Hi"}]);
    assert_eq!(fallback(&post(world.addr, CHAT, &body).await), Some("small"));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_kept_for_one_model_is_asked_of_no_other() {
    let small = ok().await;
    let world = each(with([("big", rule(SHORT))]), &[("small", &small)]).await;
    let mut body = json!({"model": "big", "input": "Hi", "store": false});
    assert_eq!(
        fallback(&post(world.addr, "/v1/responses", &body).await),
        Some("small")
    );
    body["previous_response_id"] = json!("resp_1");
    let refused = post(world.addr, "/v1/responses", &body).await;
    assert_eq!(
        (refused.status, refused.reason(), small.seen().len()),
        (404, "model_not_found", 1)
    );
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_there_for_others_alone_gets_nothing_else() {
    let (big, hosted) = (ok().await, ok().await);
    for (traffic, by_name) in [
        (Traffic::All, 200),
        (Traffic::Named, 200),
        (Traffic::Fallback, 404),
    ] {
        let mut other = serves("hosted", &hosted.url);
        other.traffic = traffic;
        let setup = with([("big", ModelRule::default().or_else(["hosted"]))]);
        let world = setup.start([serves("big", &big.url), other]).await;
        let before = hosted.seen().len();
        let named = post(world.addr, CHAT, &of_model("hosted")).await;
        assert_eq!(named.status, by_name, "{traffic:?}: {}", named.text());
        let listed = get(world.addr, "/v1/models").await.json();
        let listed = listed["data"]
            .as_array()
            .unwrap()
            .iter()
            .any(|model| model["id"] == "hosted");
        assert_eq!(listed, by_name == 200, "what is listed can be asked for");
        let after = hosted.seen().len();
        for _ in 0..20 {
            // None of these names a model; what is stored there is for whoever has the key.
            assert_eq!(post(world.addr, CHAT, &json!({"messages": []})).await.status, 200);
            assert_eq!(get(world.addr, "/v1/files").await.status, 200);
        }
        assert_eq!(
            hosted.seen().len() > after,
            traffic == Traffic::All,
            "{traffic:?}"
        );
        assert_eq!(after - before, usize::from(by_name == 200));
        world.quiet().await;
        drop(world);
        // And alone it serves what another model has no place for.
        let mut other = serves("hosted", &hosted.url);
        other.traffic = traffic;
        let setup = with([("big", ModelRule::default().or_else(["hosted"]))]);
        let world = setup.start([other]).await;
        let answer = post(world.addr, CHAT, &of_model("big")).await;
        assert_eq!((answer.status, fallback(&answer)), (200, Some("hosted")));
        let nameless = post(world.addr, CHAT, &json!({"messages": []})).await;
        assert_eq!(
            nameless.status,
            if traffic == Traffic::All { 200 } else { 404 },
            "{}",
            nameless.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_of_others_is_polled_for_nothing_and_asked_below_its_path_with_its_own_key() {
    let hosted = ok().await;
    for (engine, path, asked, key) in [
        (
            Engine::Openai,
            CHAT,
            "/openai/v1/chat/completions",
            "authorization: bearer sk-own",
        ),
        (
            Engine::Anthropic,
            "/v1/messages",
            "/openai/v1/messages",
            "x-api-key: sk-own",
        ),
    ] {
        let mut spec = serves("hosted", &format!("{}/openai/v1", hosted.url));
        (spec.engine, spec.traffic) = (engine, Traffic::Fallback);
        spec.extensions.insert(UpstreamKey::new("sk-own").unwrap());
        let rules = ModelRules::new([("big", ModelRule::default().or_else(["hosted"]))]).unwrap();
        let setup = Setup::polled().with(|setup| setup.options.models = Arc::new(rules));
        let before = hosted.seen().len();
        let world = setup.start([spec]).await;
        assert_eq!(hosted.seen().len(), before, "it is not asked how it is");
        let headers = "authorization: Bearer theirs\r\nx-api-key: theirs\r\nx-paddler-max-wait: 1s\r\ncontent-type: application/json\r\n";
        let mut body = of_model("big");
        body["max_tokens"] = json!(4);
        let answer = ask(world.addr, "POST", path, headers, &body.to_string()).await;
        assert_eq!(
            (answer.status, fallback(&answer)),
            (200, Some("hosted")),
            "{}",
            answer.text()
        );
        let seen = hosted.seen().pop().unwrap().to_ascii_lowercase();
        assert!(seen.starts_with(&format!("post {asked} http/1.1\r\n")), "{seen}");
        assert!(seen.contains(&format!("\r\n{key}\r\n")), "{seen}");
        assert!(!seen.contains("theirs") && !seen.contains("x-paddler-"), "{seen}");
        assert_eq!(seen.contains("anthropic-version: "), engine == Engine::Anthropic);
        world.quiet().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_request_would_go_is_told_with_where_it_goes_instead() {
    let small = ok().await;
    let world = each(with([("big", rule(SHORT))]), &[("small", &small)]).await;
    let mut facts = RequestFacts::new();
    facts.model = Some("big".into());
    let why = world.router.explain(&facts, 10).unwrap();
    assert_eq!(
        (why.outcome, why.fallback.len()),
        ("never", 1),
        "and not what comes behind it"
    );
    let other = &why.fallback[0];
    assert_eq!(
        (other.picked[0].as_str(), other.instead_of.as_deref()),
        ("small", Some("big"))
    );
    let text = why.to_string();
    assert!(
        text.contains("\n\nsmall instead of big\nnode ") && text.ends_with("\npicked: small"),
        "{text}"
    );
    facts.model = Some("small".into());
    assert!(world.router.explain(&facts, 10).unwrap().fallback.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_builds_on_an_answer_of_another_model_goes_to_that_one() {
    let answer = |id: &str| {
        let body = format!("{{\"id\":\"{id}\"}}");
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Do::say(&format!("{head}{body}"))
    };
    let (big, small) = (
        Stub::start([answer("resp_b")]).await,
        Stub::start([answer("resp_s")]).await,
    );
    let world = each(with([("big", rule(Duration::ZERO))]), &[("small", &small)]).await;
    let made = post(
        world.addr,
        "/v1/responses",
        &json!({"model": "big", "input": "Hi"}),
    )
    .await;
    assert_eq!(
        (made.json()["id"].as_str(), fallback(&made)),
        (Some("resp_s"), Some("small"))
    );
    // Its own is there again, and knows nothing of it.
    let own = StatusEvent::Upsert(serves("big", &big.url));
    world.statuses.apply(own).await.unwrap();
    eventually("it is there", || world.router.published().load().len() == 2).await;
    let on = json!({"model": "big", "input": "And?", "previous_response_id": "resp_s"});
    let answer = post(world.addr, "/v1/responses", &on).await;
    assert_eq!(
        (answer.status, fallback(&answer)),
        (200, Some("small")),
        "{}",
        answer.text()
    );
    assert_eq!((told(&small).as_str(), big.seen().len()), ("small", 0));
    // And what its own has made stays there, however busy it is.
    let made = post(
        world.addr,
        "/v1/responses",
        &json!({"model": "big", "input": "Hi"}),
    )
    .await;
    assert_eq!(
        (made.json()["id"].as_str(), fallback(&made)),
        (Some("resp_b"), None)
    );
    let on = json!({"model": "big", "input": "And?", "previous_response_id": "resp_b"});
    assert_eq!(fallback(&post(world.addr, "/v1/responses", &on).await), None);
    assert_eq!((big.seen().len(), small.seen().len()), (2, 2));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_model_is_asked_about_itself_no_other_answers() {
    let small = ok().await;
    let world = each(with([("big", rule(SHORT))]), &[("small", &small)]).await;
    let answer = post(world.addr, "/tokenize", &json!({"model": "big", "content": "Hi"})).await;
    assert_eq!((answer.status, small.seen().len()), (404, 0), "{}", answer.text());
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_by_another_name_or_by_none_is_served_as_ever() {
    let (big, small) = (ok().await, ok().await);
    let world = each(
        with([("alias", ModelRule::alias("big").or_else(["small"]))]),
        &[("big", &big), ("small", &small)],
    )
    .await;
    for (model, at) in [("alias", &big), ("big", &big), ("small", &small)] {
        let answer = post(world.addr, CHAT, &of_model(model)).await;
        assert_eq!((answer.status, fallback(&answer)), (200, None));
        assert!(matches!(&*told(at), "big" | "small"));
    }
    assert_eq!(post(world.addr, CHAT, &json!({"messages": []})).await.status, 200);
    assert_eq!(post(world.addr, CHAT, &of_model("gone")).await.status, 404);
    assert_eq!(world.metric("paddler_fallbacks_total"), 0.0);
    world.quiet().await;
}
