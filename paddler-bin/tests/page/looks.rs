//! Is it fit to be looked at: on a phone, in the dark, with thousands of upstreams, without motion, whatever things are called?

use paddler_engine::EngineConfig;

use crate::browser::{Browser, DESK, PHONE, Size};
use crate::support::client::{ask, chat, post};
use crate::support::program::{Gateway, Program, address_in};
use crate::use_it::{engine, in_front_of};

const VIEWS: [&str; 6] = ["upstreams", "requests", "tree", "queue", "models", "events"];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_cut_off_on_a_phone_or_a_desk_in_light_or_dark() {
    let Some(mut page) = Browser::open("shapes", PHONE, true) else {
        return;
    };
    let (one, two) = (
        engine(EngineConfig::llamacpp("Qwen2.5-Coder-32B-Instruct-Q4_K_M.gguf")).await,
        engine(
            EngineConfig::vllm("meta-llama/Llama-3.1-8B-Instruct")
                .adapters(["sql", "a-rather-long-name-of-an-adapter"]),
        )
        .await,
    );
    let long = "rack-12.row-b.fra1.example.internal:8080";
    let gateway = in_front_of(&[("gpu-1", &one), (long, &two)], &[]).await;
    ask(gateway.address, post("/v1/chat/completions", &chat("sql", 4))).await;
    ask(
        gateway.address,
        post("/v1/chat/completions", &chat("nobody-has-it", 4)),
    )
    .await;
    ask(
        gateway.management,
        post("/api/v1/upstreams/gpu-1/drain", &serde_json::json!({})),
    )
    .await;
    let shapes: [(&str, Size, bool); 3] = [
        ("phone-dark", PHONE, true),
        ("phone-light", PHONE, false),
        ("desk-dark", DESK, true),
    ];
    for (shape, size, dark) in shapes {
        page.shape(size, dark);
        page.visit("about:blank");
        page.visit(&format!("http://{}/", gateway.management));
        page.until_shown("#rows", "draining");
        page.value("document.querySelectorAll('#rows .name')[1].click()");
        page.until_shown("#rows .details", "We may have open");
        for view in VIEWS {
            page.value(&format!("location.hash = '{view}'"));
            page.until(&format!("!document.getElementById('view-{view}').hidden && document.getElementById('view-{view}').innerText.length > 60"));
            if view == "requests" {
                page.until("document.querySelectorAll('#requests tbody tr').length === 2");
                page.value("document.querySelectorAll('#requests .name')[1].click()");
                page.until_shown("#why-answer", "Sent to");
            }
            if view == "tree" {
                page.until_shown("#tree", "require model");
            }
            let widths = page.value("[document.documentElement.scrollWidth, innerWidth]");
            assert_eq!(widths[0], widths[1], "{view} on {shape} is wider than the window");
            page.picture(&format!("{view}-{shape}"), true);
        }
    }
    assert_eq!(page.faults(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_have_named_is_text_and_nothing_else() {
    let Some(mut page) = Browser::open("names", DESK, false) else {
        return;
    };
    let evil = "<img src=x onerror=hit=1>";
    let id = "<img/src=x/onerror=hit=1>";
    let one = engine(EngineConfig::vllm(evil).adapters(["<script>hit=1</script>"])).await;
    let text = format!(
        "upstreams: [{{id: '{id}', url: '{}', labels: {{zone: '{evil}'}}}}]\npoll: {{interval: 100ms}}\n",
        one.url()
    );
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-names.yaml");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let program = Program::start(
        &[
            "gateway",
            "--listen=127.0.0.1:0",
            "--management=127.0.0.1:0",
            "--config",
            file,
        ],
        &[],
    );
    let address = address_in(&program.logs(|line| line.contains("listening for requests")));
    let management = address_in(&program.logs(|line| line.contains("listening for health")));
    let gateway = Gateway {
        program,
        address,
        management,
    };
    let mut asked = post("/v1/chat/completions", &chat(evil, 4));
    asked.headers_mut().insert(
        "x-request-id",
        http::HeaderValue::from_static("<img/src=x/onerror=hit=1>"),
    );
    crate::support::client::eventually("it is answered", async || {
        ask(gateway.address, asked.clone()).await.status == 200
    })
    .await;
    page.visit(&format!("http://{}/", gateway.management));
    page.until_shown("#rows", id);
    page.until_shown("#rows", evil);
    page.until_shown("#rows", &format!("zone={evil}"));
    page.value("document.querySelector('#rows .name').click()");
    page.until_shown("#rows .details", "<script>hit=1</script>");
    page.picture("names-desk-light", true);
    page.value("document.querySelector('#rows [aria-label^=Drain]').click()");
    page.until_shown("#confirm", id);
    page.press("Escape");
    for (view, place) in [("models", "#models"), ("requests", "#requests")] {
        page.value(&format!("location.hash = '{view}'"));
        page.until_shown(place, evil);
        page.until_shown(place, id);
    }
    page.value("document.querySelector('#requests .name').click()");
    page.until_shown("#why-answer", id);
    let made = page.value("[document.images.length, document.scripts.length, typeof hit]");
    assert_eq!(made, serde_json::json!([0, 1, "undefined"]), "{made}");
    assert_eq!(page.faults(), [""; 0]);
}

/// Answers for a router with ten thousand upstreams, which this machine cannot run.
const MANY: &str = r#"
    const upstreams = Array.from({length: 10_000}, (_, n) => ({
        id: `gpu-${String(n).padStart(5, "0")}`, url: `http://10.0.${n >> 8}.${n & 255}:8080`, labels: {zone: `z${n % 7}`}, state: n % 50 === 0 ? "draining" : n % 100 === 3 ? "unable" : "healthy",
        why: n % 100 === 3 ? "7 polls failed" : undefined, able: n % 100 !== 3,
        draining: n % 50 === 0, in_flight: n % 9, open_weight: n % 9, limit_weight: 8, health: "ready", running: n % 9, waiting: n % 3,
        kv_cache_usage: (n % 100) / 100, report_age_seconds: 0.3, failed_polls: n % 100 === 3 ? 7 : 0,
        service: {state: "healthy", faults: 0, ejections: 0},
    }));
    const serving = upstreams.map(({id}) => ({upstream: id, state: "healthy", active: false}));
    const answers = {
        upstreams: {upstreams}, queue: {waiting: 0, bytes: 0, max_requests: 30, max_wait_seconds: 10, priorities: [], models: [], held_back: []},
        models: {models: [{name: "m", adapter: false, stands_for: [{model: "m"}], upstreams: serving}], serving_any: [], complete: true},
    };
    window.fetch = async (url) => {
        const name = new URL(url).pathname.split("/").pop();
        if (name === "metrics") return new Response("paddler_requests_total{class=\"chat\",status=\"200\"} 5\n");
        if (name === "events") return new Response(new ReadableStream());
        return new Response(JSON.stringify(answers[name]));
    };
"#;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_upstreams_are_paged_filtered_and_sorted() {
    let Some(mut page) = Browser::open("many", DESK, false) else {
        return;
    };
    let one = engine(EngineConfig::llamacpp("m")).await;
    let gateway = in_front_of(&[("gpu-1", &one)], &[]).await;
    page.before_all(MANY);
    page.visit(&format!("http://{}/", gateway.management));
    page.until_shown("#found", "10,000 upstreams");
    page.until_shown("#page-at", "Page 1 of 400");
    let rows = "document.querySelectorAll('#rows tbody tr').length";
    assert_eq!(page.value(rows), 25, "as many are drawn as are shown");
    page.value("document.getElementById('page-on').click()");
    page.until_shown("#rows", "gpu-00025");
    page.value("document.getElementById('filter').focus()");
    page.write("zone=z5 gpu-099");
    page.until_shown("#found", "of 10,000 upstreams");
    page.until_shown("#rows", "gpu-09903");
    page.value("document.getElementById('filter-state').value = 'unable'; document.getElementById('filter-state').dispatchEvent(new Event('change'))");
    page.until_shown("#rows", "7 polls failed");
    page.value(
        "document.getElementById('filter').value = ''; document.getElementById('filter-state').value = ''",
    );
    page.value("document.querySelectorAll('#rows th button')[3].click()");
    page.until_shown("#rows tbody tr:first-child", "gpu-00008");
    assert_eq!(
        page.value("document.querySelectorAll('#rows th')[3].getAttribute('aria-sort')"),
        "ascending"
    );
    let nodes = page
        .value("document.querySelectorAll('*').length")
        .as_u64()
        .unwrap();
    assert!(nodes < 1_500, "{nodes} elements");
    // It is drawn again and again, and what it costs stays in proportion.
    let drawn = page.value("(async () => { const began = performance.now(); for (let n = 0; n < 5; n++) { document.getElementById('filter').dispatchEvent(new Event('input')); } return (performance.now() - began) / 5; })()");
    eprintln!("to draw 25 of 10,000 takes {drawn} ms");
    page.picture("many-desk-light", false);
    assert_eq!(page.faults(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_moves_where_no_motion_is_wanted() {
    let Some(mut page) = Browser::open("motion", DESK, false) else {
        return;
    };
    let one = engine(EngineConfig::llamacpp("m")).await;
    let gateway = in_front_of(&[("gpu-1", &one)], &[]).await;
    page.visit(&format!("http://{}/", gateway.management));
    page.until("document.querySelector('#rows .in')");
    let takes = "getComputedStyle(document.querySelector('#rows .in')).transitionDuration";
    assert_eq!(page.value(takes), "0.4s");
    page.prefer(&[("prefers-reduced-motion", "reduce")]);
    assert_eq!(page.value(takes), "0s");
    // Each thing to do has a name, each field a label, and each picture is hidden from those who are read to.
    let nameless = "[...document.querySelectorAll('button, input, select, a')].filter((one) => one.offsetParent && !(one.innerText.trim() || one.textContent.trim() || \
                    one.labels?.length || one.getAttribute('aria-label'))).length";
    assert_eq!(page.value(nameless), 0);
    assert_eq!(
        page.value("document.querySelectorAll('.share:not([aria-hidden])').length"),
        0
    );
}
