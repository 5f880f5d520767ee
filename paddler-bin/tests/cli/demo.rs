//! Does the first thing that a newcomer tries work?

use std::process::Command;

use crate::support::client::{ask, get, post, series};
use crate::support::program::Program;

#[tokio::test(flavor = "multi_thread")]
async fn the_line_that_the_demo_prints_works() {
    let demo = Program::start(&["demo"], &[]);
    let line = demo.says(|line| line.starts_with("curl"));
    let answer = match Command::new("bash").args(["-c", &line]).output() {
        Ok(done) if done.status.success() => String::from_utf8(done.stdout).unwrap(),
        // No curl, or no bash: what it says is sent by other means.
        _ => {
            let (_, rest) = line.split_once("http://").unwrap();
            let (url, rest) = rest.split_once(' ').unwrap();
            let (address, path) = url.split_once('/').unwrap();
            let body = rest.split_once("-d '").unwrap().1.trim_end_matches('\'');
            let asked = post(&format!("/{path}"), &serde_json::from_str(body).unwrap());
            ask(address.parse().unwrap(), asked).await.text().to_owned()
        }
    };
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["model"], "small");
    assert_eq!(answer["usage"]["completion_tokens"], 16, "{answer}");
    // What it printed last stands there to be read: nothing is logged over it.
    let figures = demo.says(|line| line.starts_with("Figures: http://"));
    let address = figures.trim_start_matches("Figures: http://");
    let address = address.trim_end_matches("/metrics").parse().unwrap();
    let page = ask(address, get("/metrics")).await;
    let able = |name| {
        series(
            page.text(),
            &format!("paddler_upstream_able{{upstream=\"{name}\"}}"),
        )
    };
    let all = ["engine-1", "engine-2", "engine-3"].map(able);
    assert_eq!(all, [Some(1.0); 3], "{page:?}");
    demo.signal("INT");
    let ended = demo.ended().await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(ended.log, "");
    assert!(ended.out.contains("simulated"), "{ended:?}");
    assert_eq!(
        ended.out.lines().filter(|line| line.starts_with("curl")).count(),
        1,
        "{ended:?}"
    );
}
