//! Whose body is read to its end, when there is room and when there is none? On a paused clock.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body as HttpBody, Frame};
use tokio::task::JoinHandle;
use tokio::time::{Sleep, sleep};

use super::*;
use crate::forward::BoxError;

const KIB: usize = 1024;

/// So many bytes at once, then so many each second until it is whole.
struct Slow {
    next: usize,
    each: usize,
    left: usize,
    pause: Pin<Box<Sleep>>,
}

impl Slow {
    fn new(first: usize, each: usize, whole: usize) -> Self {
        Self {
            next: first,
            each,
            left: whole,
            pause: Box::pin(sleep(Duration::ZERO)),
        }
    }
}

impl HttpBody for Slow {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        std::task::ready!(self.pause.as_mut().poll(cx));
        let piece = self.next.min(self.left);
        (self.next, self.left) = (self.each, self.left - piece);
        self.pause.set(sleep(Duration::from_secs(1)));
        Poll::Ready(Some(Ok(Frame::data(vec![b'a'; piece].into()))))
    }
}

/// A budget, and whoever uploads.
struct World {
    budget: Arc<Budget>,
    options: Arc<RouterOptions>,
}

/// How many bytes came, or why no more.
type End = Result<u64, (u16, String)>;

impl World {
    fn with_room(kib: usize) -> Self {
        let options = RouterOptions {
            max_buffered: (kib * KIB) as u64,
            ..RouterOptions::default()
        };
        Self {
            budget: Arc::default(),
            options: Arc::new(options),
        }
    }

    fn upload(&self, body: Slow) -> JoinHandle<End> {
        let (budget, options) = (self.budget.clone(), self.options.clone());
        tokio::spawn(async move {
            let headers = HeaderMap::new();
            let read = read(
                &headers,
                BodyKind::Opaque,
                (Body::new(body), Instant::now()),
                &options,
                budget,
            )
            .await;
            match read {
                Ok(intake) => Ok(intake.held.bytes()),
                Err(refusal) => Err((refusal.status.as_u16(), refusal.reason.to_string())),
            }
        })
    }

    /// What becomes of a body that comes all at once.
    async fn quick(&self, bytes: usize) -> End {
        self.upload(Slow::new(bytes, 0, bytes)).await.unwrap()
    }
}

fn full() -> End {
    Err((429, "buffers_full".to_owned()))
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_has_fallen_behind_gives_way_when_its_room_is_wanted() {
    let world = World::with_room(120);
    let tiny = world.upload(Slow::new(400, 400, 15_000));
    let slow = world.upload(Slow::new(60 * KIB, KIB, 100 * KIB));
    seconds(20).await;
    assert_eq!(world.quick(60 * KIB).await, full(), "for now it may pause");
    seconds(13).await;
    assert_eq!(world.quick(10_000).await, Ok(10_000));
    assert!(!slow.is_finished(), "there was room for both");
    assert_eq!(world.quick(60 * KIB).await, Ok(60 * 1024));
    assert_eq!(slow.await.unwrap(), full());
    assert_eq!(tiny.await.unwrap(), Ok(15_000), "its room would help nobody");
    assert_eq!(world.budget.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_whose_room_nobody_wants_takes_its_time() {
    let world = World::with_room(4_000);
    // Five minutes, and most of an hour.
    for each in [10 * KIB, KIB] {
        let slow = world.upload(Slow::new(KIB, each, 3_000 * KIB));
        assert_eq!(slow.await.unwrap(), Ok(3_000 * 1024));
    }
}

#[tokio::test(start_paused = true)]
async fn the_slowest_gives_way_first_and_none_that_keeps_pace() {
    let world = World::with_room(3_000);
    let steady = world.upload(Slow::new(64 * KIB, 64 * KIB, 2_944 * KIB));
    let slower = world.upload(Slow::new(60 * KIB, KIB, 200 * KIB));
    let slow = world.upload(Slow::new(60 * KIB, 10 * KIB, 900 * KIB));
    // In KiB, after t seconds: 64 (t + 1), 60 + t and 60 + 10 t. That is too much after 38, and without `slower` after 39.
    sleep(Duration::from_millis(37_500)).await;
    assert!(!slower.is_finished() && !slow.is_finished());
    seconds(1).await;
    assert!(slower.is_finished() && !slow.is_finished());
    seconds(1).await;
    assert!(slow.is_finished() && !steady.is_finished());
    assert_eq!(
        (slower.await.unwrap(), slow.await.unwrap(), steady.await.unwrap()),
        (full(), full(), Ok(2_944 * 1024))
    );
}

#[tokio::test(start_paused = true)]
async fn who_is_behind_pushes_nobody_out_who_is_less_so() {
    for slower_begins in [true, false] {
        let world = World::with_room(200);
        let [slower, less] =
            [(40, 1), (20, 2)].map(|(first, each)| Slow::new(first * KIB, each * KIB, 150 * KIB));
        // They fill it after most of a minute.
        let (slower, less) = if slower_begins {
            (world.upload(slower), world.upload(less))
        } else {
            let less = world.upload(less);
            (world.upload(slower), less)
        };
        assert_eq!(slower.await.unwrap(), full());
        assert_eq!(less.await.unwrap(), Ok(150 * 1024));
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_is_too_slow_also_where_there_is_room() {
    let world = World::with_room(1_000);
    let stopped = world.upload(Slow::new(500 * KIB, 0, 501 * KIB));
    assert_eq!(stopped.await.unwrap(), Err((408, "slow_body".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn nobody_gives_way_where_that_would_not_be_enough() {
    let world = World::with_room(120);
    // Of one that keeps its room.
    let mut kept = Held::new(world.budget.clone());
    assert!(kept.charge(60 * 1024, 120 * 1024));
    let slow: Vec<_> = (0..2)
        .map(|_| world.upload(Slow::new(20 * KIB, KIB / 4, 40 * KIB)))
        .collect();
    seconds(32).await;
    // Each holds 28 KiB by now.
    assert_eq!(world.quick(100 * KIB).await, full());
    assert!(
        slow.iter().all(|one| !one.is_finished()),
        "it would have helped nobody"
    );
    assert_eq!(world.quick(50 * KIB).await, Ok(50 * 1024));
    for one in slow {
        assert_eq!(one.await.unwrap(), full());
    }
}

/// What was held of a budget when it was woken.
struct AtWaking(Arc<Budget>, std::sync::Mutex<Vec<u64>>);

impl std::task::Wake for AtWaking {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0.held());
    }
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_is_told_once_it_is_free() {
    let world = World::with_room(60);
    let slow = world.upload(Slow::new(50 * KIB, KIB / 4, 60 * KIB));
    seconds(31).await;
    let wants = Pace::new(Duration::from_secs(30), Instant::now());
    let mut room = std::pin::pin!(world.budget.behind.make_room(
        &wants,
        20 * 1024,
        Instant::now() + GIVING_WAY
    ));
    let waking = Arc::new(AtWaking(world.budget.clone(), std::sync::Mutex::default()));
    let waker = waking.clone().into();
    assert!(room.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(slow.await.unwrap(), full());
    assert_eq!(
        *waking.1.lock().unwrap(),
        [0],
        "it was told before the room was free"
    );
    assert!(room.await);
}
