//! Is whoever wants to know told what became of each request, once and truly?

use std::sync::{Arc, Mutex};

use paddler_core::observe::{End, Telemetries, Telemetry, Trail};
use paddler_core::request::RequestFacts;
use paddler_core::schedule::{Detail, Scratch};
use paddler_core::upstream::{ModelEntry, Models};
use paddler_engine::Fault;

use super::client::{CHAT, Client, ask, chat, eventually, get, of_model, post, stream};
use super::stub::{Do, Stub};
use super::world::{Setup, World, engine, nowhere, of, quick, slow, spec};

/// Keeps all that it is told.
#[derive(Debug, Default)]
struct Diary {
    detail: Detail,
    began: Mutex<Vec<Trail>>,
    placed: Mutex<Vec<Trail>>,
    ended: Mutex<Vec<Trail>>,
}

impl Telemetry for Diary {
    fn detail(&self, _: &RequestFacts) -> Detail {
        self.detail
    }

    fn reads_usage(&self) -> bool {
        self.detail != Detail::Nothing
    }

    fn began(&self, trail: &Trail) {
        self.began.lock().unwrap().push(trail.clone());
    }

    fn placed(&self, trail: &Trail) {
        self.placed.lock().unwrap().push(trail.clone());
    }

    fn ended(&self, trail: &Trail) {
        self.ended.lock().unwrap().push(trail.clone());
    }
}

impl Diary {
    fn of(detail: Detail) -> Arc<Self> {
        Arc::new(Self {
            detail,
            ..Self::default()
        })
    }

    /// The ends of so many requests, and no more of them.
    async fn ends(&self, many: usize) -> Vec<Trail> {
        eventually("it is told of the end", || {
            self.ended.lock().unwrap().len() >= many
        })
        .await;
        let ends = self.ended.lock().unwrap().split_off(0);
        assert_eq!(ends.len(), many);
        ends
    }

    async fn end(&self) -> Trail {
        self.ends(1).await.remove(0)
    }
}

fn told(diary: &Arc<Diary>) -> Setup {
    let diary = diary.clone();
    Setup::new().with(|setup| setup.options.telemetry = Some(diary))
}

fn sent(trail: &Trail) -> Vec<(&str, Option<&str>)> {
    let sent = trail.attempts.iter();
    sent.map(|sent| (sent.upstream.as_str(), sent.ended)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_told_with_its_way_its_times_and_its_tokens() {
    let (engine, diary) = (engine(quick()).await, Diary::of(Detail::Why));
    let world = told(&diary).start([of("a", &engine)]).await;
    let headers = "content-type: application/json\r\nx-request-id: mine\r\n";
    let body = stream(12).to_string();
    let answer = ask(world.addr, "POST", &format!("{CHAT}?x=1"), headers, &body).await;
    assert_eq!(answer.status, 200);
    let trail = diary.end().await;
    assert_eq!((&*trail.id, &*trail.method, &*trail.path), ("mine", "POST", CHAT));
    assert_eq!(
        (trail.class, trail.status, trail.end),
        ("chat", Some(200), Some(End::Complete))
    );
    assert_eq!((trail.reason, trail.events), (None, true));
    assert_eq!(trail.answer_bytes, answer.body.len() as u64);
    assert!(trail.pieces >= 1 && trail.output_tokens.is_some());
    let facts = trail.facts.as_ref().unwrap();
    assert_eq!((facts.weight, facts.body_bytes), (1, body.len() as u64));
    let sent = &trail.attempts[0];
    assert_eq!((sent.upstream.as_str(), sent.ended), ("a", Some("answered")));
    let why = sent.why.as_ref().unwrap();
    assert!(
        why.explained.summary.ends_with("-> a"),
        "{}",
        why.explained.summary
    );
    assert!(why.record.is_none());
    let times = [
        Some(trail.arrived),
        trail.began,
        Some(sent.at),
        trail.answered,
        trail.first_byte,
        trail.ended,
    ];
    assert!(
        times.iter().all(Option::is_some) && times.is_sorted(),
        "{times:?}"
    );
    let (began, placed) = (
        diary.began.lock().unwrap().len(),
        diary.placed.lock().unwrap().len(),
    );
    assert_eq!((began, placed), (1, 1));
    world.quiet().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_answered_here_has_its_reason_and_begins_nothing() {
    let diary = Diary::of(Detail::Why);
    let models = Models::Listed(vec![ModelEntry::new("known")]);
    let world = told(&diary)
        .start([spec("a", nowhere().await).models(models)])
        .await;
    for (path, status, reason, class) in [
        ("/slots", 403, Some("admin_path"), "admin"),
        ("/health", 200, None, "local"),
        ("/a%zz", 400, Some("bad_path"), "unreadable"),
    ] {
        assert_eq!(get(world.addr, path).await.status, status, "{path}");
        let trail = diary.end().await;
        assert_eq!(
            (trail.status, trail.end),
            (Some(status), Some(End::Here)),
            "{path}"
        );
        assert_eq!((trail.reason.as_deref(), trail.class), (reason, class), "{path}");
    }
    assert!(diary.began.lock().unwrap().is_empty());

    assert_eq!(post(world.addr, CHAT, &of_model("unknown")).await.status, 404);
    let trail = diary.end().await;
    assert_eq!(trail.reason.as_deref(), Some("model_not_found"));
    assert!(trail.attempts.is_empty());
    let why = trail.unplaced.unwrap();
    assert_eq!((why.outcome, why.picked.len()), ("never", 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_attempt_is_told_with_how_it_ended() {
    let (works, diary) = (engine(quick()).await, Diary::of(Detail::Nothing));
    let loads = Stub::start([Do::say("HTTP/1.1 503 Loading\r\ncontent-length: 0\r\n\r\n")]).await;
    // One after the other, whoever is tried first.
    for (id, url, how) in [
        ("gone", nowhere().await, "not_sent"),
        ("loads", loads.url.clone(), "refused"),
    ] {
        let world = told(&diary).start([spec(id, url), of("works", &works)]).await;
        let mut both = None;
        while both.is_none() {
            assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
            let trail = diary.end().await;
            assert!(
                trail.attempts.iter().all(|sent| sent.why.is_none()),
                "nobody asked"
            );
            both = Some(trail).filter(|trail| trail.attempts.len() == 2);
        }
        let both = both.unwrap();
        assert_eq!(sent(&both), [(id, Some(how)), ("works", Some("answered"))]);
        assert_eq!(both.output_tokens, None, "nobody asked");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_is_told_wherever_it_was() {
    let (engine, diary) = (engine(slow()).await, Diary::of(Detail::Nothing));
    let world = told(&diary).start([of("a", &engine)]).await;
    let begun = || diary.began.lock().unwrap().len();
    for (at, tokens) in [(1, chat(9)), (2, stream(9))] {
        let mut client = Client::connect(world.addr).await;
        client.post(CHAT, &tokens).await;
        eventually("it is sent", || begun() == at).await;
        if at == 2 {
            client.until("data:").await;
        }
        drop(client);
        let trail = diary.end().await;
        assert_eq!((trail.end, trail.reason), (Some(End::Left), None));
        assert_eq!(trail.status, (at == 2).then_some(200));
    }
    eventually("the engine is rid of both", || world.open_weight() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_breaks_off_is_told_so() {
    let (engine, diary) = (engine(quick()).await, Diary::of(Detail::Nothing));
    let world = told(&diary).start([of("a", &engine)]).await;
    engine.set_fault(Some(Fault::EofAfter { bytes: 300 })).unwrap();
    drop(post(world.addr, CHAT, &stream(50)).await);
    let trail = diary.end().await;
    assert_eq!((trail.end, trail.status), (Some(End::CutShort), Some(200)));
    assert_eq!(trail.reason.as_deref(), Some("upstream_broke_off"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorded_decision_is_made_again() {
    let (engine, diary) = (engine(quick()).await, Diary::of(Detail::Record));
    let world = told(&diary).start([of("a", &engine), of("b", &engine)]).await;
    for _ in 0..20 {
        assert_eq!(post(world.addr, CHAT, &chat(1)).await.status, 200);
    }
    let snapshot = world.router.published().load();
    for trail in diary.ends(20).await {
        let why = trail.attempts[0].why.as_ref().unwrap();
        let record = why.record.as_ref().unwrap();
        let again = snapshot.replay(record, &mut Scratch::default(), &mut ());
        assert_eq!(snapshot.ids(&again), record.picked);
        assert_eq!(record.picked[..1], [trail.attempts[0].upstream.clone()]);
    }
}

/// Panics at all that it is told.
#[derive(Debug)]
struct Panics;

impl Telemetry for Panics {
    fn detail(&self, _: &RequestFacts) -> Detail {
        panic!("detail")
    }

    fn reads_usage(&self) -> bool {
        panic!("usage")
    }

    fn began(&self, _: &Trail) {
        panic!("began")
    }

    fn placed(&self, _: &Trail) {
        panic!("placed")
    }

    fn ended(&self, _: &Trail) {
        panic!("ended")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_panics_ends_no_request_and_keeps_nobody_else_from_being_told() {
    let (engine, diary) = (engine(quick()).await, Diary::of(Detail::Why));
    let both = Telemetries(vec![Arc::new(Panics), diary.clone()]);
    let setup = Setup::new().with(|setup| setup.options.telemetry = Some(Arc::new(both)));
    let world: World = setup.start([of("a", &engine)]).await;
    assert_eq!(post(world.addr, CHAT, &chat(3)).await.status, 200);
    let trail = diary.end().await;
    assert_eq!(trail.end, Some(End::Complete));
    assert!(
        trail.attempts[0].why.is_some(),
        "what one wants to know, all are told"
    );
    world.quiet().await;
}

#[test]
fn of_several_the_one_who_wants_to_know_most_is_heeded_wherever_he_stands() {
    let details = [Detail::Nothing, Detail::Why, Detail::Record];
    let of = |each: &[Detail]| {
        let diaries = each.iter().map(|detail| Diary::of(*detail) as Arc<dyn Telemetry>);
        // Who cannot say wants nothing.
        let panics = Arc::new(Panics) as Arc<dyn Telemetry>;
        Telemetries([panics].into_iter().chain(diaries).collect()).detail(&RequestFacts::new())
    };
    assert_eq!(of(&[]), Detail::Nothing);
    for first in details {
        for second in details {
            assert_eq!(of(&[first, second]), first.max(second), "{first:?}, {second:?}");
            for third in details {
                let most = first.max(second).max(third);
                assert_eq!(
                    of(&[first, second, third]),
                    most,
                    "{first:?}, {second:?}, {third:?}"
                );
            }
        }
    }
}

/// Is told only of what it has asked for.
#[derive(Debug)]
struct Picky(Arc<Diary>);

impl Telemetry for Picky {
    fn every(&self) -> bool {
        false
    }

    fn detail(&self, facts: &RequestFacts) -> Detail {
        if facts.stream {
            Detail::Why
        } else {
            Detail::Nothing
        }
    }

    fn began(&self, trail: &Trail) {
        self.0.began(trail);
    }

    fn placed(&self, trail: &Trail) {
        self.0.placed(trail);
    }

    fn ended(&self, trail: &Trail) {
        self.0.ended(trail);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_wants_a_few_is_told_of_those_alone_and_whole() {
    let (engine, diary) = (engine(quick()).await, Diary::of(Detail::Nothing));
    let picky = Arc::new(Picky(diary.clone()));
    let setup = Setup::new().with(|setup| setup.options.telemetry = Some(picky));
    let world = setup.start([of("a", &engine)]).await;
    assert_eq!(get(world.addr, "/health").await.status, 200);
    assert_eq!(get(world.addr, "/slots").await.status, 403);
    assert_eq!(post(world.addr, CHAT, &chat(2)).await.status, 200);
    let headers = "content-type: application/json\r\nx-request-id: mine\r\n";
    ask(world.addr, "POST", CHAT, headers, &stream(2).to_string()).await;
    let trail = diary.end().await;
    assert_eq!((&*trail.id, &*trail.path, trail.class), ("mine", CHAT, "chat"));
    assert!(trail.address.is_some() && trail.attempts[0].why.is_some());
    assert!(Some(trail.arrived) <= trail.began && trail.end == Some(End::Complete));
    let told = [
        diary.began.lock().unwrap().len(),
        diary.placed.lock().unwrap().len(),
    ];
    assert_eq!(told, [1, 1]);
    world.quiet().await;
}
