//! Two agents with one id, and two ids for one engine.

use super::*;

/// An agent's first word, of this instance and of the engine at this host.
fn hello(id: &str, instance: &str, host: &str) -> serde_json::Value {
    let mut hello = own(id, 1_000);
    hello["instance"] = instance.into();
    hello["upstream"]["url"] = format!("http://{host}:8080").into();
    hello
}

fn url(rig: &Rig, id: &str) -> String {
    rig.snapshot().find(id).unwrap().spec().url.clone()
}

async fn refused(speaker: Speaker) -> StreamEnd {
    speaker.end.await.unwrap().unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn who_lives_keeps_the_id_and_the_other_is_told_what_to_do() {
    let rig = Rig::start();
    let first = rig.stream("gpu", Dialect::Own);
    first.says(hello("gpu", "one", "a")).await;
    // Another engine, or another agent beside the same one: no two take turns.
    for (instance, host) in [("two", "b"), ("two", "a")] {
        let second = rig.stream("gpu", Dialect::Own);
        second.says(hello("gpu", instance, host)).await;
        let end = refused(second).await;
        assert_eq!(end.status(), StatusCode::CONFLICT);
        assert!(end.to_string().contains("--id"), "{end}");
    }
    let silent = rig.stream("gpu", Dialect::Own);
    silent.says("{}").await;
    assert_eq!(
        refused(silent).await.status(),
        StatusCode::GONE,
        "who it is it has not said"
    );
    first.says("{}").await;
    assert_eq!(
        (rig.ids(), url(&rig, "gpu")),
        (vec!["gpu".to_owned()], "http://a:8080".to_owned())
    );

    // Its own next stream goes on with it at once, whichever ends first, and with another address.
    let next = rig.stream("gpu", Dialect::Own);
    next.says(hello("gpu", "one", "c")).await;
    assert_eq!(refused(first).await.status(), StatusCode::CONFLICT);
    assert_eq!(url(&rig, "gpu"), "http://c:8080");

    // Who is dead does not keep it: silent for three beats, or broken off.
    sleep(Duration::from_millis(3_200)).await;
    let second = rig.stream("gpu", Dialect::Own);
    second.says(hello("gpu", "two", "b")).await;
    assert_eq!(url(&rig, "gpu"), "http://b:8080");
    assert_eq!(
        refused(next).await.status(),
        StatusCode::CONFLICT,
        "it would come back too late"
    );
    second.breaks().await;
    let third = rig.stream("gpu", Dialect::Own);
    third.says(hello("gpu", "three", "a")).await;
    assert_eq!(url(&rig, "gpu"), "http://a:8080");
    third.says(json!({"bye": true})).await;
    assert!(third.ends().await.is_ok());
    assert_eq!(rig.agents.sizes(), [0; 5]);
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_1_x_gives_way_to_ours_beside_the_same_engine() {
    let rig = Rig::start();
    let before = rig.stream(UUID, Dialect::Paddler1);
    before.says(old(2, 1)).await;
    let ours = rig.stream("10.0.0.3:8080", Dialect::Own);
    ours.says(hello("10.0.0.3:8080", "one", "10.0.0.3")).await;
    before.says(old(0, 2)).await;
    let again = rig.stream("another", Dialect::Paddler1);
    again.says(old(0, 2)).await;
    let busy = || {
        let snapshot = rig.snapshot();
        let entry = snapshot.find("10.0.0.3:8080").unwrap();
        entry.report().unwrap().slots_busy
    };
    assert_eq!((rig.ids().len(), busy()), (1, Some(0)));
    assert!(
        before.ends().await.is_ok() && again.ends().await.is_ok(),
        "they are passed over"
    );
    assert_eq!(busy(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn one_engine_under_two_ids_counts_once_and_under_the_one_that_speaks() {
    let rig = Rig::start();
    let (first, second) = (rig.stream("one", Dialect::Own), rig.stream("two", Dialect::Own));
    first.says(hello("one", "1", "gpu")).await;
    second.says(hello("two", "2", "gpu")).await;
    assert_eq!(rig.ids(), ["one"]);
    let document = serde_json::to_value(rig.agents.document()).unwrap();
    let told = document["agents"].as_array().unwrap();
    let of = |id: &str| told.iter().find(|agent| agent["agent_id"] == id).unwrap()["status"].clone();
    assert_eq!(
        (&of("one")["error"], &of("one")["slots_idle"]),
        (&json!(null), &json!(2))
    );
    assert!(
        of("two")["error"].as_str().unwrap().contains("told of by one"),
        "{document}"
    );
    let leases: Vec<_> = (0..3).filter_map(|_| rig.reserve()).collect();
    assert_eq!(leases.len(), 2, "it has two slots, and not four");
    drop(leases);

    // The other one is silent now, and this one speaks.
    for _ in 0..4 {
        sleep(Duration::from_millis(900)).await;
        second.says("{}").await;
    }
    assert_eq!(rig.ids(), ["two"]);
    assert!(rig.reserve().is_some(), "how it is came with it");
    first.says("{}").await;
    second.says("{}").await;
    assert_eq!(rig.ids(), ["two"], "who is back takes nothing from it");
    second.says(json!({"bye": true})).await;
    assert_eq!(rig.ids(), ["one"]);
    assert!(rig.reserve().is_some());

    // And where one moves away there are two.
    let third = rig.stream("three", Dialect::Own);
    third.says(hello("three", "3", "gpu")).await;
    assert_eq!(rig.ids(), ["one"]);
    third.says(hello("three", "3", "elsewhere")).await;
    assert_eq!(rig.ids(), ["one", "three"]);
    for speaker in [first, third] {
        speaker.says(json!({"bye": true})).await;
    }
    assert_eq!(rig.agents.sizes(), [0; 5]);
}
