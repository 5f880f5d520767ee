//! Is nobody forgotten who is woken while he is asked, under every interleaving and every stale read?
//!
//! Each test is a small program that loom runs in all the ways that can be told apart: a task asks as a runtime would have it,
//! when it was woken, while others say something and wake it by the waker that they were given before.

use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use loom::model::Builder;
use loom::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use loom::thread::{self, JoinHandle};

#[allow(
    dead_code,
    unreachable_pub,
    reason = "a part of the library, built a second time"
)]
#[path = "../../src/forward/woken/bell.rs"]
mod bell;

/// What that is built over.
mod upstream {
    pub(crate) mod sync {
        pub(crate) use loom::sync::{Mutex, atomic};
    }
}

use bell::Woken;

/// All interleavings in which threads are preempted up to three times: that many find each of the faults that were here.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(run);
}

/// A task. Woken, it is to run.
struct Task(AtomicBool);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.swap(true, AcqRel);
    }
}

impl Task {
    /// One that is new, so it is to run.
    fn new() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }
}

/// Somebody who says something now and then.
type Speaker = Arc<AtomicU32>;

/// Those who speak, asked by one.
struct Asking {
    woken: Woken,
    speakers: Vec<(Speaker, u32)>,
    /// By which it was asked.
    waker: Waker,
}

impl Asking {
    /// Has asked each of so many once, and heard nothing.
    fn new(speakers: usize, task: &Arc<Task>) -> Self {
        let speakers = (0..speakers)
            .map(|_| (Speaker::new(AtomicU32::new(0)), 0))
            .collect();
        let mut asking = Self {
            woken: Woken::new(),
            speakers,
            waker: Waker::noop().clone(),
        };
        asking.run(task);
        asking
    }

    /// Goes on for as long as the task is woken.
    fn run(&mut self, task: &Arc<Task>) {
        let waker = Waker::from(task.clone());
        let cx = Context::from_waker(&waker);
        while task.0.swap(false, AcqRel) {
            while self.poll(&cx).is_ready() {}
        }
    }

    fn poll(&mut self, cx: &Context<'_>) -> Poll<()> {
        let (speakers, waker) = (&mut self.speakers, &mut self.waker);
        self.woken.poll(cx, |cx| {
            waker.clone_from(cx.waker());
            // Nothing but the number stands between the two.
            let news = speakers
                .iter_mut()
                .find(|(said, heard)| said.load(Acquire) > *heard);
            news.map_or(Poll::Pending, |(_, heard)| {
                *heard += 1;
                Poll::Ready(())
            })
        })
    }

    /// Each of them says so much from now on.
    fn speak(&self, often: u32) -> Vec<JoinHandle<()>> {
        let speak = |(said, _): &(Speaker, u32)| {
            let (said, waker) = (said.clone(), self.waker.clone());
            thread::spawn(move || {
                for _ in 0..often {
                    said.fetch_add(1, Release);
                    waker.wake_by_ref();
                }
            })
        };
        self.speakers.iter().map(speak).collect()
    }

    /// When all has been said, all has been heard.
    fn end(mut self, task: &Arc<Task>, speaking: Vec<JoinHandle<()>>, often: u32) {
        for speaker in speaking {
            assert!(speaker.join().is_ok());
        }
        self.run(task);
        for (said, heard) in &self.speakers {
            assert_eq!((said.load(Relaxed), *heard), (often, often));
        }
    }
}

#[test]
fn who_wakes_it_while_it_is_asked() {
    model(|| {
        let task = Task::new();
        let mut asking = Asking::new(1, &task);
        // For nothing, so that it is asked again just then.
        asking.waker.wake_by_ref();
        let speaking = asking.speak(1);
        asking.run(&task);
        asking.end(&task, speaking, 1);
    });
}

#[test]
fn two_who_wake_it_at_once() {
    model(|| {
        let task = Task::new();
        let mut asking = Asking::new(2, &task);
        let speaking = asking.speak(1);
        asking.run(&task);
        asking.end(&task, speaking, 1);
    });
}

#[test]
fn who_wakes_it_again_while_it_is_heard() {
    model(|| {
        let task = Task::new();
        let mut asking = Asking::new(1, &task);
        let speaking = asking.speak(2);
        asking.run(&task);
        asking.end(&task, speaking, 2);
    });
}

#[test]
fn who_wakes_it_while_it_goes_to_another_task() {
    model(|| {
        let (before, after) = (Task::new(), Task::new());
        let mut asking = Asking::new(1, &before);
        let speaking = asking.speak(1);
        asking.run(&after);
        asking.end(&after, speaking, 1);
    });
}
