//! Who may use the page, and what may it do?

use http::HeaderValue;
use paddler_engine::EngineConfig;
use serde_json::json;

use crate::browser::{Browser, PHONE};
use crate::support::client::{ask, get, post};
use crate::support::program::Gateway;
use crate::use_it::{engine, in_front_of};

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_asked_for_kept_in_the_tab_and_forgotten() {
    let Some(mut page) = Browser::open("key", PHONE, false) else {
        return;
    };
    let one = engine(EngineConfig::llamacpp("m")).await;
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("page-key.txt");
    std::fs::write(&file, "mk-1\n").unwrap();
    let upstream = format!("gpu-1={}", one.url());
    let gateway = Gateway::start(
        "gateway",
        &[upstream],
        &["--management-key-file", file.to_str().unwrap()],
    );
    page.visit(&format!("http://{}/", gateway.management));
    page.until("document.getElementById('ask-key').open");
    assert!(!page.text("body").contains("gpu-1"), "nothing is told without");
    page.picture("key-phone-light", false);
    page.tab_to("#key");
    page.write("wrong");
    page.press("Enter");
    page.until("document.getElementById('ask-key').open && document.getElementById('key').value === ''");
    page.until_shown("#key-title", "not known here");
    page.tab_to("#key");
    page.write("mk-1");
    page.press("Enter");
    page.until_shown("#rows", "gpu-1");
    page.visit("about:blank");
    page.visit(&format!("http://{}/", gateway.management));
    page.until_shown("#rows", "gpu-1");
    assert_eq!(
        page.value("Object.keys(localStorage).length + document.cookie.length"),
        0
    );
    page.value("document.getElementById('forget').click()");
    page.until("document.getElementById('ask-key')?.open && sessionStorage.length === 0");
    // Refusals are in the browser's log; nothing else is.
    let faults = page.faults();
    assert!(faults.iter().all(|fault| fault.contains("401")), "{faults:?}");
    page.press("Escape");
    page.until_shown("#link-word", "held");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_runs_no_script_but_its_own_and_stands_in_nobodys_frame() {
    let one = engine(EngineConfig::llamacpp("m")).await;
    let gateway = in_front_of(&[("gpu-1", &one)], &[]).await;
    let answer = ask(gateway.management, get("/")).await;
    assert_eq!(answer.status, 200);
    let policy = answer.headers["content-security-policy"].to_str().unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.split("; ").any(|one| one == rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(answer.headers["x-content-type-options"], "nosniff");
    assert_eq!(ask(gateway.management, post("/", &json!({}))).await.status, 405);
    assert_eq!(ask(gateway.management, get("/page/../api.rs")).await.status, 404);

    let drain = |origin: String| {
        let mut asked = post("/api/v1/upstreams/gpu-1/drain", &json!({}));
        asked
            .headers_mut()
            .insert("origin", HeaderValue::from_str(&origin).unwrap());
        asked
    };
    let other = format!("http://127.0.0.1:{}", gateway.address.port());
    assert_eq!(
        ask(gateway.management, drain(other)).await.status,
        403,
        "a page of another port is another's"
    );
    let own = format!("http://{}", gateway.management);
    assert_eq!(ask(gateway.management, drain(own)).await.status, 200);

    let Some(mut page) = Browser::open("policy", PHONE, false) else {
        return;
    };
    page.visit(&format!("http://{}/", gateway.management));
    page.until_shown("#rows", "gpu-1");
    page.value("const script = document.createElement('script'); script.textContent = 'hit = 1'; document.body.append(script)");
    assert_eq!(page.value("typeof hit"), "undefined");
    assert!(
        page.faults()
            .iter()
            .any(|fault| fault.contains("Content Security Policy")),
        "it was forbidden"
    );
}
