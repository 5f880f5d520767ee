//! Can somebody see how the upstreams are, and change what the page lets them change?

use paddler_engine::{Engine, EngineConfig};

use crate::browser::{Browser, DESK};
use crate::support::client::{ask, chat, eventually, get, post};
use crate::support::program::Gateway;

pub(crate) async fn engine(config: EngineConfig) -> Engine {
    Engine::start(config.instant()).await.unwrap()
}

/// A gateway in front of these, with all of them ready.
pub(crate) async fn in_front_of(engines: &[(&str, &Engine)], more: &[&str]) -> Gateway {
    let upstreams: Vec<_> = engines
        .iter()
        .map(|(id, engine)| format!("{id}={}", engine.url()))
        .collect();
    let mut flags = vec!["--poll-interval=100ms"];
    flags.extend(more);
    let gateway = Gateway::start("gateway", &upstreams, &flags);
    eventually("all are ready", async || {
        let all = ask(gateway.management, get("/api/v1/upstreams")).await.json();
        let all = all["upstreams"].as_array().unwrap();
        all.len() == engines.len() && all.iter().all(|upstream| upstream["health"] == "ready")
    })
    .await;
    gateway
}

/// The text of an upstream's row.
fn row(id: &str) -> String {
    format!(
        "[...document.querySelectorAll('#rows tbody tr')].find((row) => row.innerText.includes('{id}'))?.innerText"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_is_found_drained_and_seen_to_die_with_the_keyboard_alone() {
    let Some(mut page) = Browser::open("use-it", DESK, false) else {
        return;
    };
    let (one, two) = (
        engine(EngineConfig::llamacpp("small")).await,
        engine(EngineConfig::vllm("large")).await,
    );
    let gateway = in_front_of(&[("gpu-1", &one), ("gpu-2", &two)], &[]).await;
    let home = format!("http://{}/", gateway.management);
    page.visit(&home);
    page.until_shown("#rows", "gpu-1");
    page.until_shown("#rows", "gpu-2");
    page.until_shown("#rows", "large");
    page.until_shown("#link-word", "live");
    assert_eq!(page.text("#found"), "2 upstreams");
    page.picture("upstreams-desk-light", false);

    page.press("Tab");
    assert_eq!(
        page.value("document.activeElement.className"),
        "skip",
        "the first way leads past the menu"
    );
    page.tab_to("#filter");
    let outline = page.value("getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(outline, "solid", "the focus is seen");
    page.write("small");
    page.until_shown("#found", "1 of 2 upstreams");
    assert!(!page.text("#rows").contains("gpu-2"));

    page.tab_to("#rows [aria-label^=Drain]");
    page.press("Enter");
    page.until("document.getElementById('confirm').open");
    assert!(page.text("#confirm").contains("Drain gpu-1?"));
    page.press("Escape");
    page.until("!document.getElementById('confirm').open");
    let draining = async || {
        ask(gateway.management, get("/api/v1/upstreams/gpu-1"))
            .await
            .json()["draining"]
            .clone()
    };
    assert_eq!(draining().await, false, "nobody has said yes");
    assert_eq!(
        page.value("document.activeElement.getAttribute('aria-label')"),
        "Drain gpu-1",
        "the focus is back"
    );

    page.press("Enter");
    page.until("document.getElementById('confirm').open");
    page.picture("confirm-desk-light", false);
    page.tab_to("#confirm-yes");
    page.press("Enter");
    page.until(&format!("{}?.includes('draining')", row("gpu-1")));
    assert_eq!(draining().await, true);
    assert_eq!(page.text("#notice"), "gpu-1 is drained.");
    assert_eq!(
        page.value("document.activeElement.getAttribute('aria-label')"),
        "Undrain gpu-1",
        "it is there through all looks"
    );
    // The router looks for changes four times a second: it has to have seen this one before it is undone.
    page.value("location.hash = 'events'");
    page.until_shown("#events", "gpu-1 was healthy and is draining");
    page.value("location.hash = 'upstreams'");
    page.until("!document.getElementById('view-upstreams').hidden");
    page.tab_to("#rows [aria-label^=Undrain]");
    page.press("Enter");
    page.until("document.getElementById('confirm').open");
    page.tab_to("#confirm-yes");
    page.press("Enter");
    page.until(&format!("{}?.includes('healthy')", row("gpu-1")));
    assert_eq!(draining().await, false);

    page.value("document.getElementById('filter').value = ''; document.getElementById('filter').dispatchEvent(new Event('input'))");
    page.tab_to("#rows .name");
    page.press("Enter");
    page.until_shown("#rows .details", "Prompt tokens not answered yet");
    two.shutdown().await;
    page.until(&format!("/unable|ejected/.test({})", row("gpu-2")));
    page.until_shown("#summary", "1 / 2");
    page.picture("died-desk-light", false);
    page.value("location.hash = 'events'");
    page.until_shown("#events", "gpu-1 was draining and is healthy");
    page.until_shown("#events", "gpu-2 was healthy and is unable");
    page.picture("events-desk-light", false);

    assert_eq!(page.faults(), [""; 0]);
    assert!(
        page.fetched.iter().all(|url| url.starts_with(&home)),
        "only from there: {:?}",
        page.fetched
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_explained_and_shown_in_the_tree() {
    let Some(mut page) = Browser::open("decision", DESK, true) else {
        return;
    };
    let (one, two) = (
        engine(EngineConfig::llamacpp("small")).await,
        engine(EngineConfig::vllm("large")).await,
    );
    let gateway = in_front_of(&[("gpu-1", &one), ("gpu-2", &two)], &[]).await;
    for model in ["small", "large", "small", "nobody-has-it"] {
        ask(gateway.address, post("/v1/chat/completions", &chat(model, 4))).await;
    }
    page.visit(&format!("http://{}/#requests", gateway.management));
    page.until("document.querySelectorAll('#requests tbody tr').length === 4");
    assert!(page.text("#requests").contains("model_not_found"));
    page.value("document.getElementById('filter-requests').focus()");
    page.write("gpu-2");
    page.until("document.querySelectorAll('#requests tbody tr').length === 1");
    page.tab_to("#requests .name");
    page.press("Enter");
    page.until_shown("#why-answer", "Sent to gpu-2");
    page.until_shown("#why-answer", "require model 2 → 1");
    page.tab_to("#why-answer summary");
    page.press("Enter");
    page.until_shown("#why-answer details[open]", "gpu-1");
    page.picture("requests-desk-dark", false);
    page.tab_to("#why-answer p button");
    page.press("Enter");
    page.until_shown("#tree .walked", "2 → 1");
    // Three were placed, and one found nobody at the first node.
    page.until_shown("#tree .flow", "4 (100 %)");
    page.until_shown("#tree", "4 (100 %), left nobody 1, ended here 1");
    page.until_shown("#tree", "3 (75 %), picked here 3");
    page.picture("tree-desk-dark", true);

    page.value("location.hash = 'requests'");
    page.value("document.getElementById('why-model').focus()");
    page.write("small");
    page.press("Enter");
    page.until_shown("#why-answer", "A chat with small");
    page.until_shown("#why-answer", "To gpu-1");
    page.value("location.hash = 'queue'");
    page.until_shown("#answered", "chat, 200");
    page.until_shown("#refusals", "model_not_found");
    page.picture("queue-desk-dark", true);
    assert_eq!(page.faults(), [""; 0]);
}

/// The counters come as text, and labels hold what trees are written with.
#[tokio::test(flavor = "multi_thread")]
async fn counters_are_read_and_grow() {
    let Some(mut page) = Browser::open("figures", DESK, false) else {
        return;
    };
    let one = engine(EngineConfig::llamacpp("small")).await;
    let gateway = in_front_of(&[("gpu-1", &one)], &[]).await;
    page.visit(&format!("http://{}/", gateway.management));
    page.until_shown("#rows", "gpu-1");
    let text = |walks: u32, refusals: u32| {
        format!(
            "# TYPE paddler_tree_node_walks_total counter\n\
             paddler_tree_node_walks_total{{node=\"3\",title=\"a \\\"b\\\" {{c}}, \\\\ d\",event=\"entered\"}} {walks}\n\
             paddler_refusals_total{{reason=\"queue_full\"}} {refusals}\npaddler_other_total 7\n"
        )
    };
    let script = format!(
        "(async () => {{ const {{ Figures }} = await import('/page/figures.js'); const figures = new Figures();
          figures.look({}, 1000); const first = figures.series('paddler_refusals_total')[0].rate ?? null;
          figures.look({}, 3000); const walks = figures.series('paddler_tree_node_walks_total')[0];
          return [first, walks.labels.title, walks.value, walks.rate, figures.sum('paddler_refusals_total'), figures.series('paddler_other_total')]; }})()",
        serde_json::json!(text(10, 50)),
        serde_json::json!(text(30, 4)),
    );
    // What is less than before has begun anew.
    let expected = serde_json::json!([null, "a \"b\" {c}, \\ d", 30, 10, {"value": 4, "rate": 2}, []]);
    assert_eq!(page.value(&script), expected);
    assert_eq!(page.faults(), [""; 0]);
}
