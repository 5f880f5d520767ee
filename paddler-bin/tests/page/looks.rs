//! Is it fit to be looked at: on a phone, in the dark, with thousands of upstreams, without motion, whatever things are called?

use paddler_engine::{Engine, EngineConfig};

use crate::browser::{Browser, DESK, PHONE, Size};
use crate::support::client::{Client, ask, chat, eventually, get, post, streamed};
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
    eventually("it is answered", async || {
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

/// A gateway in front of ten thousand addresses of one engine.
fn in_front_of_ten_thousand(engine: &Engine) -> Gateway {
    let port = engine.addr().port();
    let upstream = |n: u32| {
        let (row, place) = (n / 250, n % 250 + 1);
        format!(
            "  - {{id: gpu-{n:05}, url: 'http://127.1.{row}.{place}:{port}', engine: openai, max_in_flight: 8, labels: {{zone: z{}}}}}\n",
            n % 7
        )
    };
    // One look at each is enough.
    let text: String = (0..10_000).map(upstream).collect();
    let text = format!("poll: {{interval: 5m}}\nupstreams:\n{text}");
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-many.yaml");
    std::fs::write(&file, text).unwrap();
    Gateway::by(file.to_str().unwrap())
}

/// The bytes of all that a look of the page brings, and how many milliseconds the slowest part of it took.
fn one_look(page: &mut Browser) -> (u64, f64) {
    let looks = "Number(document.body.dataset.looks)";
    let wait = |after: u64| format!("{looks} > {after}");
    let before = page.value(looks).as_u64().unwrap();
    // One that has begun brings a part of it.
    page.until(&wait(before));
    page.value("performance.clearResourceTimings()");
    page.until(&wait(before + 1));
    let parts = "performance.getEntriesByType('resource').filter((one) => one.responseEnd && !one.name.includes('events'))";
    let bytes = page.value(&format!(
        "{parts}.reduce((sum, one) => sum + one.encodedBodySize, 0)"
    ));
    let longest = page.value(&format!("Math.max(...{parts}.map((one) => one.duration))"));
    (bytes.as_u64().unwrap(), longest.as_f64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_upstreams_are_paged_filtered_and_sorted() {
    let Some(mut page) = Browser::open("many", DESK, false) else {
        return;
    };
    // A connection that is kept for each is more than some machines allow.
    let config = EngineConfig::vllm("m").keep_alive_requests(1);
    let config = config
        .prefill_tokens_per_second(f64::INFINITY)
        .decode_tokens_per_second(0.001);
    let engine = Engine::start(config.address([0, 0, 0, 0].into())).await.unwrap();
    let gateway = in_front_of_ten_thousand(&engine);
    eventually("all are there", async || {
        let asked = get("/api/v1/upstreams?limit=1");
        ask(gateway.management, asked).await.json()["found"] == 10_000
    })
    .await;
    let drain = post("/api/v1/upstreams/gpu-09908/drain", &serde_json::json!({}));
    assert!(ask(gateway.management, drain).await.is_good());
    let mut client = Client::to(gateway.address);
    let busy = client
        .send(post("/v1/chat/completions", &streamed(chat("m", 9))))
        .await;
    assert_eq!(busy.status, 200);

    page.visit(&format!("http://{}/", gateway.management));
    page.until_shown("#found", "10,000 upstreams");
    page.until_shown("#page-at", "Page 1 of 400");
    page.until_shown("#summary", "1 / 80,000");
    let rows = "document.querySelectorAll('#rows tbody tr').length";
    assert_eq!(page.value(rows), 25, "as many are drawn as are shown");
    page.value("document.getElementById('page-on').click()");
    page.until_shown("#rows", "gpu-00025");
    page.value("document.getElementById('filter').focus()");
    page.write("ZONE=z3 gpu-099");
    page.until_shown("#found", "15 of 10,000 upstreams");
    page.until_shown("#rows", "gpu-09908");
    let of_state = |state: &str| {
        format!(
            "document.getElementById('filter-state').value = '{state}'; document.getElementById('filter-state').dispatchEvent(new Event('change'))"
        )
    };
    page.value(&of_state("draining"));
    page.until_shown("#found", "1 of 10,000 upstreams");
    page.value("document.getElementById('filter').value = ''");
    page.value(&of_state(""));
    page.value("document.querySelectorAll('#rows th button')[2].click()");
    page.until_shown("#rows tbody tr:first-child", "1 / 8");
    assert_eq!(
        page.value("document.querySelectorAll('#rows th')[2].getAttribute('aria-sort')"),
        "ascending"
    );
    page.value("document.querySelector('#rows .name').click()");
    page.until_shown("#rows .details", "We may have open");
    let nodes = page
        .value("document.querySelectorAll('*').length")
        .as_u64()
        .unwrap();
    assert!(nodes < 1_500, "{nodes} elements");
    let (bytes, longest) = one_look(&mut page);
    let all = ask(gateway.management, get("/api/v1/upstreams")).await.body.len();
    eprintln!("of {all} bytes about 10,000 upstreams a look brings {bytes}, in {longest} ms");
    assert!(bytes < 64 << 10, "{bytes} bytes");
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
