//! Whatever is said in whatever order, nothing panics and nothing is held once it is over. By itself, since each panic of
//! the program counts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

// It needs not all of what the picker's other tests need.
#[allow(dead_code, reason = "each target uses its own part of it")]
#[path = "picker/envoy.rs"]
mod envoy;
#[allow(dead_code, reason = "each target uses its own part of it")]
#[path = "picker/world.rs"]
mod world;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use envoy_types::pb::envoy::service::ext_proc::v3::ProcessingRequest;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use envoy::*;
use world::{Setup, World, abc, eventually};

/// One message, or to read what has been said.
#[derive(Debug, Clone)]
enum Step {
    Say(Box<ProcessingRequest>),
    Hear,
    Close,
}

fn messages() -> impl Strategy<Value = Step> {
    let say = |message: ProcessingRequest| Just(Step::Say(Box::new(message)));
    let body = prop_oneof![
        Just(BODY.to_owned()),
        Just(BODY[..9].to_owned()),
        Just(BODY[9..].to_owned()),
        Just(String::new()),
        Just("x".repeat(200_000)),
    ];
    let body = (body, any::<bool>());
    let ends = any::<bool>();
    prop_oneof![
        4 => ends.prop_map(|ends| Step::Say(Box::new(request_headers("POST", CHAT, &[], ends)))),
        1 => say(request_headers("GET", "/v1/models", &[], true)),
        1 => say(request_headers("", "", &[("a b", "\u{0}")], true)),
        6 => body.clone().prop_map(|(body, ends)| Step::Say(Box::new(request_body(body, ends)))),
        1 => say(request_trailers()),
        4 => (prop_oneof![Just("200"), Just("503"), Just("101"), Just("x")], ends)
            .prop_map(|(status, ends)| Step::Say(Box::new(response_headers(status, &[], ends)))),
        4 => body.prop_map(|(body, ends)| Step::Say(Box::new(response_body(body, ends)))),
        1 => say(response_trailers()),
        1 => say(ProcessingRequest::default()),
        6 => Just(Step::Hear),
        1 => Just(Step::Close),
    ]
}

async fn play(world: &World, modes: Option<(i32, i32)>, steps: Vec<Step>) {
    let mut stream = world.open().await;
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Say(message) => {
                let message = match modes {
                    Some((request, response)) if number == 0 => with_modes(*message, request, response),
                    _ => *message,
                };
                // One who is held up since he reads nothing says no more.
                let said = stream.try_say(message);
                drop(tokio::time::timeout(std::time::Duration::from_millis(20), said).await);
            }
            Step::Hear => drop(stream.is_silent().await),
            Step::Close => stream.close(),
        }
    }
}

/// How often anything has panicked, also where it is caught.
static PANICS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn whatever_is_said_nothing_is_held_once_it_is_over() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Relaxed);
        report(panic);
    }));
    let runtime = Runtime::new().unwrap();
    let world = runtime.block_on(Setup::new().start(abc()));
    let modes = proptest::option::of((0..6, 0..6));
    let mut config = ProptestConfig::with_cases(120);
    config.failure_persistence = None;
    let run = |(modes, first, steps): (Option<(i32, i32)>, bool, Vec<Step>)| {
        runtime.block_on(async {
            let mut all = Vec::new();
            if first {
                all.push(Step::Say(Box::new(request_headers("POST", CHAT, &[], false))));
            }
            all.extend(steps);
            play(&world, modes, all).await;
            world.quiet().await;
            eventually("no stream is open", || {
                world.metric("paddler_picker_streams") == 0.0
            })
            .await;
        });
        Ok(())
    };
    let cases = (
        modes,
        prop::bool::weighted(0.8),
        prop::collection::vec(messages(), 0..10),
    );
    proptest::test_runner::TestRunner::new(config)
        .run(&cases, run)
        .unwrap();
    assert!(
        world.metric("paddler_picker_streams_total") >= 120.0,
        "each case has opened a stream"
    );
    assert_eq!(PANICS.load(Relaxed), 0);
}
