//! What becomes of the upstreams when their list is replaced?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use paddler_core::forward::BoxError;
use paddler_core::schedule::trees;
use paddler_core::status::{MemberList, Members, PollOptions};
use paddler_core::upstream::http::UpstreamKey;
use paddler_core::upstream::{Connect, Engine, Upstream, UpstreamSpec};

use crate::fake::Fake;
use crate::rig::{Rig, id, spec};

/// Counts how often a way is made.
#[derive(Debug)]
struct Counting(Arc<Fake>, AtomicUsize);

impl Connect for Counting {
    fn connect(&self, _: &UpstreamSpec) -> Result<Arc<dyn Upstream>, BoxError> {
        self.1.fetch_add(1, SeqCst);
        Ok(self.0.clone())
    }
}

fn llamacpp(name: &str) -> UpstreamSpec {
    let mut spec = spec(name, &format!("http://{name}"));
    spec.engine = Engine::Llamacpp;
    spec
}

fn start(specs: impl IntoIterator<Item = UpstreamSpec>) -> (Members, Rig, Arc<Counting>) {
    let (members, list) = MemberList::new(specs);
    let connect = Arc::new(Counting(Fake::llama(1, 4), AtomicUsize::new(0)));
    let rig = Rig::start(
        trees::gateway(),
        vec![Box::new(list)],
        connect.clone(),
        Some(PollOptions::default()),
    );
    (members, rig, connect)
}

#[tokio::test(start_paused = true)]
async fn who_stays_on_the_list_keeps_what_is_known_of_him() {
    let (members, rig, connect) = start([llamacpp("a"), llamacpp("b")]);
    let before = rig.entry("a", "a report", |entry| entry.report().is_some()).await;
    rig.statuses.set_draining(id("a"), true).await.unwrap();
    members.set([llamacpp("a"), llamacpp("c")]);
    rig.until("c for b", |now| {
        now.find("c").is_some() && now.find("b").is_none()
    })
    .await;
    let after = rig.snapshot().find("a").unwrap().clone();
    assert_eq!(after.generation(), before.generation());
    assert!(after.report().is_some());
    assert_eq!(connect.1.load(SeqCst), 3, "one way for each that has joined");
    assert_eq!(
        rig.snapshot().is_draining("a"),
        Some(true),
        "he is draining still"
    );
    // Gone and come back, he has said nothing yet, and the operator's word holds.
    members.set([llamacpp("c")]);
    rig.until("a is gone", |now| now.find("a").is_none()).await;
    members.set([llamacpp("a"), llamacpp("c")]);
    rig.until("a is back", |now| now.find("a").is_some()).await;
    assert_eq!(rig.snapshot().is_draining("a"), Some(true));
    assert_eq!(connect.1.load(SeqCst), 4, "a way of his own");
}

#[tokio::test(start_paused = true)]
async fn who_leaves_the_list_gets_no_more_and_ends_what_he_has() {
    let (members, rig, _) = start([llamacpp("a")]);
    rig.entry("a", "a report", |entry| entry.report().is_some()).await;
    let lease = rig.reserve().unwrap();
    let before = rig.snapshot();
    members.set([]);
    rig.until("nobody is left", |now| now.is_empty()).await;
    assert!(rig.reserve().is_none());
    let place = before.index("a").unwrap();
    assert_eq!(before.ledger().own_load(place).weight, 1, "it goes on");
    lease.complete();
    assert_eq!(before.ledger().own_load(place).weight, 0);
}

#[tokio::test(start_paused = true)]
async fn a_label_is_no_new_way_and_an_address_or_a_key_is() {
    let (members, rig, connect) = start([llamacpp("a")]);
    rig.entry("a", "a report", |entry| entry.report().is_some()).await;
    let mut seen = Vec::new();
    let mut keyed = llamacpp("a").label("zone", "b");
    keyed.extensions.insert(UpstreamKey::new("sk-1").unwrap());
    let mut moved = keyed.clone();
    moved.url = "http://b".to_owned();
    for (generation, spec) in (1..).zip([llamacpp("a").label("zone", "b"), keyed, moved]) {
        members.set([spec]);
        let entry = rig
            .entry("a", "the change", |entry| entry.generation() == generation)
            .await;
        seen.push((connect.1.load(SeqCst), entry.report().is_some()));
    }
    // Only somebody else has to be asked afresh how he is.
    assert_eq!(seen, [(1, true), (2, true), (3, false)]);
}

#[tokio::test(start_paused = true)]
async fn of_two_with_one_id_the_later_one_joins_and_the_other_is_told_to_nobody() {
    let twice = || [spec("a", "http://one"), spec("a", "http://two")];
    let (members, rig, connect) = start(twice());
    rig.until("a", |now| now.find("a").is_some()).await;
    let generation = rig.snapshot().find("a").unwrap().generation();
    members.set(twice().into_iter().chain([llamacpp("c")]));
    rig.until("c", |now| now.find("c").is_some()).await;
    let a = rig.snapshot().find("a").unwrap().clone();
    assert_eq!(
        (a.spec().url.as_str(), a.generation()),
        ("http://two", generation)
    );
    assert_eq!(connect.1.load(SeqCst), 2, "one way for each");
}
