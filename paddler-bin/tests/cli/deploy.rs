//! Do the files of `examples/deploy` say what this program understands?
//!
//! Neither systemd nor Docker is needed: what they would run is shown to the program, which reads its command line before it
//! tells its help.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use paddler_core::config::{Config, Shutdown, Value};
use serde_json::Value as Json;

use crate::support::program::run;

fn deploy(file: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/deploy");
    Path::new(folder).join(file)
}

fn text(file: &str) -> String {
    fs::read_to_string(deploy(file)).unwrap()
}

/// Checks that the program reads this command line and knows these variables.
async fn understood(args: &[&str], variables: &[(String, String)]) {
    let variables: Vec<_> = variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let help = run(&[args, &["--help"]].concat(), &variables).await;
    assert_eq!(help.status.code(), Some(0), "{args:?} {help:?}");
    for (name, _) in variables {
        assert!(help.out.contains(&format!("[env: {name}=")), "{args:?}: {name}");
    }
}

/// As systemd and compose write it.
fn seconds(text: &str) -> Duration {
    Duration::from_secs(text.strip_suffix('s').unwrap().parse().unwrap())
}

/// How long the program may take to stop, if nothing else is said.
fn longest_stop() -> Duration {
    let Shutdown { settle, grace, .. } = Config::default().shutdown;
    settle + grace
}

/// The value of a setting of a unit that is there once.
fn setting<'u>(unit: &'u str, name: &str) -> &'u str {
    let values: Vec<_> = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='))
        .collect();
    assert_eq!(values.len(), 1, "{name}");
    values[0]
}

#[tokio::test]
async fn systemd_starts_reloads_and_stops_it() {
    let unit = text("systemd/paddler.service");
    let command: Vec<_> = setting(&unit, "ExecStart").split(' ').collect();
    assert!(command[0].ends_with("/paddler"), "{command:?}");
    understood(&command[1..], &[]).await;
    assert!(setting(&unit, "ExecReload").contains("-HUP $MAINPID"));
    assert_eq!(setting(&unit, "KillSignal"), "SIGTERM");
    assert!(seconds(setting(&unit, "TimeoutStopSec")) > longest_stop());

    let keys = text("systemd/keys.conf");
    let (credential, _) = setting(&keys, "LoadCredential").split_once(':').unwrap();
    let (name, value) = setting(&keys, "Environment").split_once('=').unwrap();
    assert_eq!(value, format!("%d/{credential}"));
    understood(&["gateway"], &[(name.to_owned(), value.to_owned())]).await;
}

/// The instructions of the last stage of the image, each with the rest of its line.
fn last_stage(dockerfile: &str) -> Vec<(&str, &str)> {
    let lines: Vec<_> = dockerfile
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .collect();
    let last = lines.iter().rposition(|(name, _)| *name == "FROM").unwrap();
    lines[last..].to_vec()
}

fn instruction<'d>(stage: &[(&'d str, &'d str)], name: &str) -> &'d str {
    stage.iter().find(|(other, _)| *other == name).unwrap().1
}

fn strings(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap()
}

/// The variables of the image.
fn image_variables(stage: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = instruction(stage, "ENV").split(' ');
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    };
    pairs.map(pair).collect()
}

fn port(address: &str) -> u16 {
    address.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn value<'v>(variables: &'v [(String, String)], name: &str) -> &'v str {
    &variables.iter().find(|(other, _)| other == name).unwrap().1
}

#[tokio::test]
async fn the_image_starts_it_and_asks_it_how_it_is() {
    let dockerfile = text("docker/Dockerfile");
    let stage = last_stage(&dockerfile);
    assert_eq!(instruction(&stage, "FROM"), "scratch");
    let user = instruction(&stage, "USER").split(':').next().unwrap();
    assert!(
        user.parse::<u32>().unwrap() > 0,
        "it is not root, and nobody could look up a name"
    );

    let program = strings(instruction(&stage, "ENTRYPOINT"));
    assert!(
        stage
            .iter()
            .any(|(name, rest)| *name == "COPY" && rest.ends_with(&program[0]))
    );
    let variables = image_variables(&stage);
    let command = strings(instruction(&stage, "CMD"));
    understood(&[&command[0]], &variables).await;

    let (_, check) = instruction(&stage, "HEALTHCHECK").split_once("CMD ").unwrap();
    let check = strings(check);
    assert_eq!(check[0], program[0]);
    let management = value(&variables, "PADDLER_MANAGEMENT").to_owned();
    understood(&[&check[1]], &[("PADDLER_MANAGEMENT".to_owned(), management)]).await;
    let exposed: u16 = instruction(&stage, "EXPOSE").parse().unwrap();
    assert_eq!(exposed, port(value(&variables, "PADDLER_LISTEN")));
}

fn words(json: &Json) -> Vec<&str> {
    let words = json.as_array().unwrap().iter();
    words.map(|word| word.as_str().unwrap()).collect()
}

#[tokio::test]
async fn compose_puts_it_in_front_of_engines_that_are_there() {
    let yaml = Value::from_yaml(&text("compose/compose.yaml"), "compose.yaml").unwrap();
    let compose = serde_json::to_value(yaml).unwrap();
    let services = compose["services"].as_object().unwrap();
    let paddler = &services["paddler"];
    let context = deploy("compose").join(paddler["build"]["context"].as_str().unwrap());
    let dockerfile = context.join(paddler["build"]["dockerfile"].as_str().unwrap());
    assert_eq!(
        dockerfile.canonicalize().unwrap(),
        deploy("docker/Dockerfile").canonicalize().unwrap()
    );
    let variables: Vec<_> = paddler["environment"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    understood(&words(&paddler["command"]), &variables).await;

    let image = text("docker/Dockerfile");
    let listen = port(value(&image_variables(&last_stage(&image)), "PADDLER_LISTEN"));
    let published = words(&paddler["ports"]);
    assert!(
        published
            .iter()
            .all(|map| port(map) == listen && map.starts_with("127.0.0.1:"))
    );
    assert!(seconds(paddler["stop_grace_period"].as_str().unwrap()) > longest_stop());

    let upstreams: Vec<_> = value(&variables, "PADDLER_UPSTREAM").split(',').collect();
    assert_eq!(upstreams.len(), services.len() - 1);
    for url in upstreams {
        let (name, port) = url.strip_prefix("http://").unwrap().split_once(':').unwrap();
        let engine = &services[name];
        let engine = match engine["extends"]["service"].as_str() {
            Some(other) => &services[other],
            None => engine,
        };
        let flags = words(&engine["command"]);
        let after = |flag| flags[flags.iter().position(|other| *other == flag).unwrap() + 1];
        assert_eq!((after("--port"), after("--host")), (port, "0.0.0.0"), "{name}");
    }
}
