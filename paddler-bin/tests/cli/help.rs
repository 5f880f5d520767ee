//! Is what the help says true?

use paddler_core::config::{AgentRules, Config, Mode, Registry, Statsd, Value};
use serde_json::{Value as Json, json};

use crate::support::program::run;

/// The default that the help tells for each flag.
async fn defaults(command: &str) -> Vec<(String, String)> {
    let ended = run(&[command, "--help"], &[]).await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let mut flag = String::new();
    let mut found = Vec::new();
    for line in ended.out.lines().map(str::trim) {
        if line.starts_with("--") {
            flag = line.split_whitespace().next().unwrap().to_owned();
        }
        if let Some((_, rest)) = line.split_once("[default: ") {
            found.push((flag.clone(), rest.split_once(']').unwrap().0.to_owned()));
        }
    }
    found
}

#[tokio::test]
async fn each_default_in_the_help_is_the_one_in_force() {
    for (command, mode) in [("gateway", Mode::Gateway), ("balancer", Mode::Balancer)] {
        let mut left = vec![
            "--listen",
            "--management",
            "--engine",
            "--max-requests",
            "--max-wait",
            "--poll-interval",
            "--grace",
            "--agents",
            "--statsd-prefix",
            "--statsd-reporting-interval",
        ];
        for (flag, said) in defaults(command).await {
            left.retain(|known| *known != flag);
            let setting: Json = match flag.as_str() {
                "--listen" => json!({"listen": said}),
                "--management" => json!({"management": said}),
                "--engine" => json!({"upstreams": [{"url": "http://a", "engine": said}]}),
                "--max-requests" => json!({"queue": {"max_requests": said.parse::<u32>().unwrap()}}),
                "--max-wait" => json!({"queue": {"max_wait": said}}),
                "--poll-interval" => json!({"poll": {"interval": said}}),
                "--agents" => json!({"agents": {"access": said}}),
                "--grace" => json!({"shutdown": {"grace": said}}),
                "--statsd-prefix" => json!({"statsd": {"address": "a:1", "prefix": said}}),
                "--statsd-reporting-interval" => json!({"statsd": {"address": "a:1", "interval": said}}),
                other => panic!("{other} has a default that is not looked at here"),
            };
            let default = Config::default_for(mode);
            let (listen, management, queue) = (default.listen, default.management, default.queue);
            let (poll, shutdown) = (default.poll, default.shutdown);
            let said = default
                .overlay(&Value::from_json(&setting).unwrap(), "help", &Registry::new())
                .unwrap();
            assert_eq!(
                (said.listen, said.management, said.queue),
                (listen, management, queue),
                "{flag}"
            );
            assert_eq!((said.poll, said.shutdown), (poll, shutdown), "{flag}");
            assert_eq!(said.agents, AgentRules::default(), "{flag}");
            let statsd = said.telemetry.statsd;
            assert!(statsd.is_none_or(|said| said == Statsd::new("a:1")), "{flag}");
            assert!(
                said.upstreams
                    .iter()
                    .all(|one| one.spec.engine == Default::default()),
                "{flag}"
            );
        }
        assert!(left.is_empty(), "{command} --help tells no default of {left:?}");
    }
}

#[tokio::test]
async fn whoever_mistypes_is_helped() {
    for (args, says) in [
        (&["gateway", "--upstrem", "http://a"][..], "'--upstream'"),
        (&["gatway"], "'gateway'"),
        (&["check"], "<FILE>"),
        (&["gateway", "--engine=vlm"], "vllm"),
        (&[], "Usage: paddler <COMMAND>"),
    ] {
        let ended = run(args, &[]).await;
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(ended.log.contains(says), "{args:?}: {ended:?}");
    }
}

#[tokio::test]
async fn each_command_has_help_and_there_is_a_version() {
    for args in [
        &["--help"][..],
        &["gateway", "-h"],
        &["balancer", "-h"],
        &["check", "-h"],
        &["demo", "-h"],
        &["top", "-h"],
        &["dashboard", "-h"],
    ] {
        let ended = run(args, &[]).await;
        assert_eq!(
            (ended.status.code(), ended.log.as_str()),
            (Some(0), ""),
            "{ended:?}"
        );
        assert!(ended.out.contains("Usage: paddler"), "{ended:?}");
    }
    for command in ["gateway", "balancer"] {
        let ended = run(&[command, "--help"], &[]).await;
        let says = "Flags come before the environment, and both before the file.";
        assert!(ended.out.contains(says), "{ended:?}");
    }
    let ended = run(&["--version"], &[]).await;
    assert_eq!(ended.out, concat!("paddler ", env!("CARGO_PKG_VERSION")));
}

#[cfg(not(feature = "envoy"))]
#[tokio::test]
async fn a_program_without_the_picker_says_how_to_build_one_with_it() {
    for args in [
        &["endpoint-picker"][..],
        &["endpoint-picker", "--help"],
        &["endpoint-picker", "--upstream", "http://a", "--fallbacks=0"],
    ] {
        let ended = run(args, &[]).await;
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(ended.log.contains("--features envoy"), "{ended:?}");
    }
    assert!(!run(&["--help"], &[]).await.out.contains("endpoint-picker"));
}
