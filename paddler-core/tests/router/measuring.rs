//! Do the figures of models and of the tree say what came of the requests?

use std::sync::Arc;

use paddler_core::observe::{Telemetry, Trail, names};
use paddler_core::schedule::trees;
use paddler_core::upstream::{ModelEntry, Models};
use paddler_engine::Fault;
use serde_json::{Value, json};

use super::client::{CHAT, Client, ask, chat, eventually, get, of_model, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, of, quick, slow, spec};

/// The value of the series that begins so.
fn value(world: &World, series: &str) -> Option<f64> {
    let page = world.router.metrics_page();
    let mut lines = page
        .lines()
        .filter_map(|line| Some(line.strip_prefix(series)?.strip_prefix(' ')?.to_owned()));
    let value = lines.next();
    assert!(lines.next().is_none(), "{series} is there twice");
    value.map(|value| value.parse().unwrap())
}

fn results(world: &World, model: &str) -> [Option<f64>; 4] {
    ["answered", "refused", "cut_short", "left"].map(|result| {
        let series = format!("paddler_model_requests_total{{model=\"{model}\",result=\"{result}\"}}");
        value(world, &series)
    })
}

fn count(world: &World, family: &str, model: &str) -> Option<f64> {
    value(world, &format!("{family}_count{{model=\"{model}\"}}"))
}

fn asks(model: &str, mut body: Value) -> Value {
    body["model"] = json!(model);
    body
}

fn known() -> Models {
    Models::Listed(vec![
        ModelEntry::new("known"),
        ModelEntry::adapter("tuned", "known"),
    ])
}

/// Wants to know what answers use, and nothing else.
#[derive(Debug)]
struct Reads;

impl Telemetry for Reads {
    fn reads_usage(&self) -> bool {
        true
    }

    fn ended(&self, _: &Trail) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_family_is_told_alone_as_it_is_on_the_whole_page() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine).models(known())]).await;
    assert_eq!(post(world.addr, CHAT, &asks("known", chat(1))).await.status, 200);
    world.quiet().await;
    // Values change from one page to the next.
    let series = |page: String| -> Vec<String> {
        let name = |line: &str| match line.rsplit_once(' ') {
            Some((series, _)) if !line.starts_with('#') => series.to_owned(),
            _ => line.to_owned(),
        };
        page.lines().map(name).collect()
    };
    let mut alone = Vec::new();
    for family in names::ALL {
        let page = world.router.metrics_of(&[family.name.to_owned()]);
        assert!(page.starts_with(&format!("# HELP {} ", family.name)), "{page}");
        alone.extend(series(page));
    }
    let mut all = series(world.router.metrics_page());
    alone.sort();
    all.sort();
    assert_eq!(alone, all);
    assert_eq!(world.router.metrics_of(&["paddler_nothing".to_owned()]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_clients_make_up_makes_no_series() {
    let engine = engine(quick()).await;
    let world = Setup::new().start([of("a", &engine).models(known())]).await;
    for body in [asks("known", chat(1)), asks("tuned", chat(1)), chat(1)] {
        assert_eq!(post(world.addr, CHAT, &body).await.status, 200);
    }
    for made_up in ["x", "y\\\"\n{}", "other"] {
        assert_eq!(post(world.addr, CHAT, &of_model(made_up)).await.status, 404);
    }
    assert_eq!(get(world.addr, "/health").await.status, 200);
    for (model, results_of) in [
        ("known", [1.0, 0.0, 0.0, 0.0]),
        ("tuned", [1.0, 0.0, 0.0, 0.0]),
        ("other", [1.0, 3.0, 0.0, 0.0]),
    ] {
        let told = || results(&world, model) == results_of.map(Some);
        eventually(model, told).await;
        assert_eq!(
            count(&world, "paddler_request_seconds", model),
            Some(1.0),
            "{model}"
        );
    }
    let page = world.router.metrics_page();
    assert_eq!(page.matches("paddler_request_seconds_count").count(), 3);
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_their_times_are_those_of_streams() {
    let engine = engine(quick()).await;
    for reads in [false, true] {
        let setup = Setup::new().with(|setup| {
            setup.options.telemetry = reads.then(|| Arc::new(Reads) as _);
        });
        let world = setup.start([of("a", &engine).models(known())]).await;
        // Of an answer that comes at once, the first byte is no first token.
        assert_eq!(post(world.addr, CHAT, &asks("known", chat(7))).await.status, 200);
        assert_eq!(
            post(world.addr, CHAT, &asks("known", stream(7))).await.status,
            200
        );
        let answered = || count(&world, "paddler_request_seconds", "known") == Some(2.0);
        eventually("both have ended", answered).await;
        let first_tokens = count(&world, "paddler_time_to_first_token_seconds", "known");
        assert_eq!(first_tokens, Some(1.0));
        let tokens = value(&world, "paddler_output_tokens_total{model=\"known\"}");
        assert_eq!(
            tokens,
            reads.then_some(14.0),
            "what nobody reads is not none but unknown"
        );
        let prompts = value(&world, "paddler_prompt_tokens_total{model=\"known\"}");
        assert_eq!(prompts.is_some_and(|many| many > 0.0), reads);
        let spent = |counted: &str| {
            let family = "paddler_time_per_output_token_seconds";
            value(
                &world,
                &format!("{family}_count{{model=\"known\",counted=\"{counted}\"}}"),
            )
        };
        assert_eq!(spent("tokens"), Some(f64::from(u8::from(reads))));
        if reads {
            assert_eq!(spent("pieces"), Some(0.0));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_answers_asks_for_readable_ones() {
    let headers = "content-type: application/json\r\naccept-encoding: gzip\r\n";
    for (reads, wanted) in [(false, "gzip"), (true, "identity")] {
        let stub = Stub::start([Do::ok("{}")]).await;
        let setup = Setup::new().with(|setup| {
            setup.options.telemetry = reads.then(|| Arc::new(Reads) as _);
        });
        let world = setup.start([spec("a", &*stub.url)]).await;
        let body = chat(1).to_string();
        assert_eq!(ask(world.addr, "POST", CHAT, headers, body).await.status, 200);
        let seen = stub.seen().remove(0);
        assert!(seen.contains(&format!("accept-encoding: {wanted}\r\n")), "{seen}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_end_is_counted_once() {
    let (broken, endless) = (engine(quick()).await, engine(slow()).await);
    broken.set_fault(Some(Fault::EofAfter { bytes: 300 })).unwrap();
    let world = Setup::new().start([of("a", &broken).models(known())]).await;
    drop(post(world.addr, CHAT, &asks("known", stream(50))).await);
    let cut = || results(&world, "known") == [0.0, 0.0, 1.0, 0.0].map(Some);
    eventually("it was cut short", cut).await;

    let world = Setup::new().start([of("a", &endless).models(known())]).await;
    let mut client = Client::connect(world.addr).await;
    client.post(CHAT, &asks("known", stream(9))).await;
    client.until("data:").await;
    drop(client);
    let left = || results(&world, "known") == [0.0, 0.0, 0.0, 1.0].map(Some);
    eventually("it has left", left).await;
    let whole = count(&world, "paddler_request_seconds", "known");
    assert_eq!(whole, Some(0.0), "how long it would have taken, nobody knows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_tell_what_they_do_and_begin_anew_with_another_tree() {
    let engine = engine(quick()).await;
    // One draw after the other, so that it is the same picks which are timed.
    let setup = Setup::new().with(|setup| setup.options.seed = Some(1));
    let world = setup.start([of("a", &engine).models(known())]).await;
    let node = |title: &str, event: &str| {
        let page = world.router.metrics_page();
        let (title, event) = (format!("title=\"{title}\""), format!("event=\"{event}\""));
        let mut lines = page.lines().filter(|line| {
            line.starts_with("paddler_tree_node_walks_total{")
                && line.contains(&title)
                && line.contains(&event)
        });
        lines
            .next()
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
    };
    let asked = 200;
    for _ in 0..asked {
        assert_eq!(post(world.addr, CHAT, &asks("known", chat(1))).await.status, 200);
    }
    assert_eq!(post(world.addr, CHAT, &of_model("unknown")).await.status, 404);
    let entered = node("require model", "entered").unwrap();
    assert!(entered >= f64::from(asked) + 1.0, "{entered}");
    assert!(node("require model", "emptied").unwrap() >= 1.0);
    assert!(node("require model", "ended").unwrap() >= 1.0);
    assert_eq!(node("require model", "picked"), None, "it is no leaf");
    let timed = value(&world, "paddler_pick_seconds_count").unwrap();
    assert!(
        timed > 0.0 && timed < f64::from(asked) / 4.0,
        "one in 64: {timed}"
    );

    world.statuses.set_tree(trees::seed()).await.unwrap();
    let swapped = || node("require model", "entered").is_none();
    eventually("the tree is another", swapped).await;
    assert_eq!(post(world.addr, CHAT, &asks("known", chat(1))).await.status, 200);
    assert_eq!(
        value(&world, "paddler_pick_seconds_count").map(|now| now >= timed),
        Some(true)
    );
}
