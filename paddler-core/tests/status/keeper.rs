//! The loop that owns the board: what it is told, how often it publishes, and what it survives.

use std::sync::Arc;
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::schedule::{Node, Signals, Tree, trees};
use paddler_core::status::{
    Failure, FailureKind, FixedList, MemberList, PollOptions, Report, Snapshot, StatusBoard, StatusEvent,
    StatusSource,
};
use paddler_core::upstream::{Ledger, UpstreamSpec};
use tokio::time::{Instant, sleep, timeout};

use crate::fake::{Fake, Net, Reply};
use crate::log::Log;
use crate::rig::{Rig, id, spec};

/// Says what it is given, and then ends, or goes wrong.
#[derive(Debug)]
struct Says {
    events: std::vec::IntoIter<StatusEvent>,
    then_panics: bool,
}

impl Says {
    fn all(events: impl IntoIterator<Item = StatusEvent>) -> Box<dyn StatusSource> {
        Box::new(Self::new(events, false))
    }

    fn new(events: impl IntoIterator<Item = StatusEvent>, then_panics: bool) -> Self {
        let events: Vec<_> = events.into_iter().collect();
        Self {
            events: events.into_iter(),
            then_panics,
        }
    }
}

#[async_trait::async_trait]
impl StatusSource for Says {
    async fn next(&mut self) -> Option<StatusEvent> {
        let next = self.events.next();
        assert!(
            next.is_some() || !self.then_panics,
            "a source of the host's has a fault"
        );
        next
    }
}

fn reported(name: &str, waiting: u32) -> StatusEvent {
    let mut report = Report::new();
    report.waiting = Some(waiting);
    StatusEvent::Report {
        id: id(name),
        report,
        sample: None,
    }
}

fn here(name: &str) -> UpstreamSpec {
    spec(name, "http://here")
}

fn silent() -> Arc<Net> {
    let nobody = || Fake::new(|_, _| Reply::not_found());
    Net::of([("http://here", nobody()), ("http://there", nobody())])
}

fn unpolled(sources: Vec<Box<dyn StatusSource>>) -> Rig {
    Rig::start(trees::gateway(), sources, silent(), None)
}

fn pick_anyone() -> Tree {
    Tree::new(Signals::Corrected, Node::random()).unwrap()
}

/// How many publishes the time allows, since the rig was started.
fn allowed(began: Instant) -> u64 {
    // The first one is not waited for, and the last may be just due.
    2 + u64::try_from(began.elapsed().as_millis() / 10).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_events_is_few_publishes() {
    let began = Instant::now();
    let events = (0..10_000).map(|at| reported("a", at));
    let rig = unpolled(vec![Says::all(
        [StatusEvent::Upsert(here("a"))].into_iter().chain(events),
    )]);
    rig.report("a", "the last event", |report| report.waiting == Some(9_999))
        .await;
    let publishes = rig.snapshot().generation();
    assert!(
        publishes <= allowed(began),
        "{publishes} publishes in {:?}",
        began.elapsed()
    );
    // And a slow trickle is published at once.
    sleep(Duration::from_secs(1)).await;
    let quiet = rig.snapshot().generation();
    rig.statuses.apply(reported("a", 1)).await.unwrap();
    rig.report("a", "one more", |report| report.waiting == Some(1))
        .await;
    assert_eq!(rig.snapshot().generation(), quiet + 1);
    assert!(rig.clock.now().since(rig.snapshot().published()) <= Duration::from_millis(2));
}

#[tokio::test(start_paused = true)]
async fn what_was_applied_is_in_force_at_once_for_a_host_that_says_so() {
    let rig = unpolled(vec![]);
    for name in ["a", "b", "c"] {
        rig.statuses.apply(StatusEvent::Upsert(here(name))).await.unwrap();
        let began = Instant::now();
        rig.statuses.publish().await.unwrap();
        assert!(rig.snapshot().find(name).is_some());
        assert_eq!(Instant::now(), began, "no pause was waited for");
    }
    let generation = rig.snapshot().generation();
    rig.statuses.publish().await.unwrap();
    assert_eq!(rig.snapshot().generation(), generation, "nothing had changed");
}

#[tokio::test(start_paused = true)]
async fn events_that_never_cease_are_published_all_the_same() {
    let rig = unpolled(vec![Box::new(FixedList::new([here("a")]))]);
    let began = Instant::now();
    for waiting in 0..1_000 {
        rig.statuses.apply(reported("a", waiting)).await.unwrap();
        sleep(Duration::from_millis(1)).await;
    }
    let publishes = rig.snapshot().generation();
    assert!(
        (80..=allowed(began)).contains(&publishes),
        "{publishes} in {:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn many_joins_are_few_publishes_and_each_is_polled_with_a_sample() {
    let began = Instant::now();
    let fake = Fake::llama(2, 4);
    let net = Net::of([("http://here", fake)]);
    let specs: Vec<_> = (0..20_000).map(|at| here(&format!("u{at}"))).collect();
    let rig = Rig::net(specs, net, PollOptions::default());
    rig.until("all are there", |snapshot| snapshot.len() == 20_000)
        .await;
    let publishes = rig.snapshot().generation();
    assert!(
        publishes <= allowed(began),
        "{publishes} publishes in {:?}",
        began.elapsed()
    );
    rig.until("all are heard", |snapshot| {
        snapshot.iter().all(|(_, entry)| entry.report().is_some())
    })
    .await;
    assert!(rig.snapshot().iter().all(|(_, entry)| entry.others() == 2));
}

#[tokio::test(start_paused = true)]
async fn a_tree_and_a_drain_take_effect() {
    let rig = Rig::start(
        pick_anyone(),
        vec![Box::new(FixedList::new([here("a"), here("b")]))],
        silent(),
        None,
    );
    rig.until("both are there", |snapshot| snapshot.len() == 2).await;
    assert_eq!(rig.statuses.set_draining(id("a"), true).await, Ok(true));
    // At once, without a publish.
    let picks = |rig: &Rig| {
        (0..20)
            .filter_map(|_| rig.reserve())
            .map(|lease| lease.upstream().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(picks(&rig), ["b"; 20]);
    assert_eq!(rig.statuses.set_draining(id("b"), true).await, Ok(true));
    assert_eq!(picks(&rig).len(), 0);
    assert_eq!(rig.statuses.set_draining(id("a"), false).await, Ok(true));
    assert_eq!(picks(&rig), ["a"; 20]);
    assert_eq!(rig.statuses.set_draining(id("c"), true).await, Ok(false));

    let reject = Node::reject(paddler_core::schedule::Class::Shed, "closed");
    rig.statuses
        .set_tree(Tree::new(Signals::Corrected, reject).unwrap())
        .await
        .unwrap();
    rig.until("another tree", |snapshot| {
        snapshot.tree().node_count() == 1 && snapshot.tree().to_string() != pick_anyone().to_string()
    })
    .await;
    assert!(rig.reserve().is_none());
}

#[tokio::test(start_paused = true)]
async fn what_a_source_said_stays_when_it_ends() {
    let rig = unpolled(vec![
        Says::all([StatusEvent::Upsert(here("a"))]),
        Says::all([
            StatusEvent::Upsert(here("b")),
            reported("b", 3),
            StatusEvent::Remove(id("b")),
        ]),
    ]);
    sleep(Duration::from_secs(3_600)).await;
    let snapshot = rig.snapshot();
    assert_eq!((snapshot.len(), snapshot.find("a").is_some()), (1, true));
    assert_eq!(rig.statuses.apply(StatusEvent::Remove(id("a"))).await, Ok(()));
    rig.until("nobody", |snapshot| snapshot.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_ends_nothing_but_itself() {
    let log = Log::begin();
    let broken = Says::new([StatusEvent::Upsert(here("a"))], true);
    let rig = unpolled(vec![
        Box::new(broken),
        Says::all([StatusEvent::Upsert(spec("b", "http://there"))]),
    ]);
    rig.until("both are there", |snapshot| snapshot.len() == 2).await;
    sleep(Duration::from_secs(1)).await;
    rig.statuses.apply(reported("a", 7)).await.unwrap();
    rig.report("a", "a report", |report| report.waiting == Some(7))
        .await;
    assert_eq!(
        log.count(&[
            "ERROR",
            "a status source has panicked",
            "a source of the host's has a fault"
        ]),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_said_of_strangers_changes_nothing() {
    let rig = unpolled(vec![Box::new(FixedList::new([here("a")]))]);
    rig.until("it is there", |snapshot| snapshot.len() == 1).await;
    let before = rig.snapshot().generation();
    let failure = Failure::new(FailureKind::Timeout, "");
    for event in [
        reported("x", 1),
        StatusEvent::Failed { id: id("x"), failure },
        StatusEvent::Remove(id("x")),
    ] {
        rig.statuses.apply(event).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!((rig.snapshot().len(), rig.snapshot().generation()), (1, before));
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_place_on_the_board_is_not_polled() {
    let mut board = StatusBoard::new(trees::gateway());
    for at in 0..Ledger::CAPACITY {
        board.apply(StatusEvent::Upsert(here(&format!("u{at}"))), Moment::ZERO);
    }
    let fake = Fake::llama(0, 4);
    let net = Net::of([("http://here", fake.clone())]);
    let rig = Rig::over(
        board,
        vec![Box::new(FixedList::new([here("late")]))],
        net,
        Some(PollOptions::default()),
    );
    sleep(Duration::from_secs(60)).await;
    assert!(rig.snapshot().find("late").is_none() && fake.polls().is_empty());
    rig.statuses.apply(StatusEvent::Remove(id("u0"))).await.unwrap();
    rig.statuses
        .apply(StatusEvent::Upsert(here("late")))
        .await
        .unwrap();
    rig.report("late", "a report", |_| true).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_gives_its_place_back_after_a_while_when_nobody_says_so() {
    let alone = here("a").max_in_flight(1);
    let rig = Rig::start(
        pick_anyone(),
        vec![Box::new(FixedList::new([alone]))],
        silent(),
        None,
    );
    rig.until("it is there", |snapshot| snapshot.len() == 1).await;
    let mut lease = rig.reserve().unwrap();
    lease.sent();
    let ended = Instant::now();
    drop(lease);
    assert!(rig.reserve().is_none(), "the engine may still be at it");
    let again = async {
        loop {
            match rig.reserve() {
                Some(lease) => return lease,
                None => sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let lease = timeout(Duration::from_secs(60), again)
        .await
        .expect("its place is lost");
    let held = ended.elapsed();
    assert!(
        (Duration::from_secs(10)..Duration::from_millis(10_600)).contains(&held),
        "{held:?}"
    );
    lease.complete();
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_is_dropped_ends_all_its_tasks() {
    #[derive(Debug)]
    struct Forever;
    #[async_trait::async_trait]
    impl StatusSource for Forever {
        async fn next(&mut self) -> Option<StatusEvent> {
            std::future::pending().await
        }
    }
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let hung = Fake::new(|_, _| Reply::Hangs);
    let specs = (0..50).map(|at| here(&format!("u{at}")));
    let sources: Vec<Box<dyn StatusSource>> = vec![Box::new(FixedList::new(specs)), Box::new(Forever)];
    let net = Net::of([("http://here", hung.clone())]);
    let rig = Rig::start(trees::gateway(), sources, net, Some(PollOptions::default()));
    rig.until("all are asked", |_| hung.open() == 50).await;
    let published = rig.published.clone();
    drop(rig);
    sleep(Duration::from_millis(10)).await;
    assert_eq!((tasks(), hung.open()), (before, 0));
    assert_eq!(
        published.load().len(),
        50,
        "what was known stays for whoever holds it"
    );
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_news_and_only_news() {
    let log = Log::begin();
    let fake = Fake::new(|path, polls| match polls {
        3..=5 => Reply::Refuses,
        7 | 8 => Reply::Says(500, String::new()),
        _ => crate::fake::llama(path, 0, 4, "m"),
    });
    let mut llama = here("a");
    llama.engine = paddler_core::upstream::Engine::Llamacpp;
    let rig = Rig::net(
        [llama],
        Net::of([("http://here", fake.clone())]),
        PollOptions::default(),
    );
    rig.until("twelve polls", |_| fake.polls().len() == 12).await;
    rig.statuses.apply(StatusEvent::Remove(id("a"))).await.unwrap();
    rig.until("it has left", |snapshot| snapshot.is_empty()).await;
    for (words, times) in [
        (["INFO", "upstream joined"], 1),
        (["INFO", "upstream is ready"], 2),
        (["WARN", "upstream cannot be asked how it is"], 1),
        (["INFO", "upstream says again how it is"], 1),
        (["WARN", "upstream says that it cannot serve"], 1),
        (["INFO", "upstream left"], 1),
    ] {
        assert_eq!(log.count(&[words[0], words[1], "upstream=a"]), times, "{words:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_several_sources_the_first_counts_and_one_place_is_one_upstream() {
    let (first, list) = MemberList::new([here("a")]);
    let (second, other) = MemberList::new([spec("a", "http://there"), here("twin")]);
    let rig = unpolled(vec![Box::new(list.named("file")), Box::new(other.named("names"))]);
    let url = |snapshot: &Snapshot, name: &str| Some(snapshot.find(name)?.spec().url.clone());
    let who = async |name: &str| rig.statuses.who_tells(id(name)).await.unwrap();
    rig.until("the first counts", |snapshot| {
        url(snapshot, "a").as_deref() == Some("http://here")
    })
    .await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(
        rig.snapshot().len(),
        1,
        "the same place under another name is the same"
    );
    assert_eq!((who("a").await, who("twin").await), (Some("file"), None));
    first.set([]);
    rig.until("the second counts", |snapshot| {
        url(snapshot, "a").as_deref() == Some("http://there")
    })
    .await;
    rig.until("and so does its twin", |snapshot| snapshot.len() == 2)
        .await;
    assert_eq!(who("twin").await, Some("names"));
    rig.statuses
        .apply(StatusEvent::Upsert(spec("a", "http://here:81")))
        .await
        .unwrap();
    assert_eq!(who("a").await, Some("host"));
    second.set([]);
    rig.until("nobody else tells of them", |snapshot| snapshot.len() == 1)
        .await;
    rig.statuses.apply(StatusEvent::Remove(id("a"))).await.unwrap();
    rig.until("nobody tells of anybody", Snapshot::is_empty).await;
    assert_eq!(who("a").await, None);
}
