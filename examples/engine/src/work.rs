//! How does a task become tokens, and how long does that take?

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::core::Core;
use crate::schedule::{Demand, Finish, QueueFull, Seat, Step};
use crate::text::{self, Speech};

/// One task of a request.
#[derive(Debug, Clone)]
pub(crate) struct TaskPlan {
    pub(crate) demand: Demand,
    /// What the answer's text is drawn from.
    pub(crate) seed: u64,
    /// How it will end if nobody interferes.
    pub(crate) finish: Finish,
}

/// How a request's tasks are treated when things go wrong.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Manner {
    /// Never make a token.
    pub(crate) stall: bool,
    /// Go on to the end when nobody listens any more.
    pub(crate) deaf: bool,
    /// A client that leaves takes everyone along.
    pub(crate) fragile: bool,
    /// What the words are like.
    pub(crate) speech: Speech,
}

/// What a task tells its request.
#[derive(Debug)]
pub(crate) enum Event {
    Token {
        task: usize,
        index: usize,
        text: String,
        last: bool,
    },
    Done {
        task: usize,
        slot: usize,
    },
}

/// Hands a request's tasks to the scheduler; each then runs by itself.
pub(crate) fn start(
    core: &Arc<Core>,
    plans: &[TaskPlan],
    manner: Manner,
) -> Result<mpsc::UnboundedReceiver<Event>, QueueFull> {
    let seats = core
        .scheduler
        .submit(plans.iter().map(|plan| plan.demand.clone()).collect())?;
    let (events, receiver) = mpsc::unbounded_channel();
    for (task, (seat, plan)) in seats.into_iter().zip(plans).enumerate() {
        let work = Work {
            core: core.clone(),
            task,
            plan: plan.clone(),
            events: events.clone(),
        };
        tokio::spawn(work.run(seat, manner));
    }
    Ok(receiver)
}

struct Work {
    core: Arc<Core>,
    task: usize,
    plan: TaskPlan,
    events: mpsc::UnboundedSender<Event>,
}

impl Work {
    async fn run(self, seat: Seat, manner: Manner) {
        let events = self.events.clone();
        let core = self.core.clone();
        let born = core.crashes();
        tokio::select! {
            biased;
            // Its stream must end with its connection, and not as if it were whole.
            () = core.stopped() => events.closed().await,
            () = core.crashed(born) => events.closed().await,
            () = events.closed(), if !manner.deaf => {
                if manner.fragile {
                    core.crash();
                }
            }
            () = self.generate(seat, manner) => {}
        }
    }

    async fn generate(self, seat: Seat, manner: Manner) {
        seat.admitted().await;
        if manner.stall {
            std::future::pending::<()>().await;
        }
        let prompt = self.plan.demand.prompt_tokens;
        let mut due = self.prefill(prompt, Instant::now()).await;
        seat.prefilled(self.prefill_time(prompt).as_secs_f64());
        let total = self.plan.demand.output_tokens;
        for index in 0..total {
            let running = loop {
                match seat.decode() {
                    Step::Decoded { running } => break running,
                    Step::Preempted => {
                        seat.admitted().await;
                        due = self.prefill(prompt + index, Instant::now()).await;
                    }
                }
            };
            let last = index + 1 == total;
            let text = text::token(self.plan.seed, index, manner.speech);
            // Nobody may be listening any more; whether that matters is for `run` to say.
            self.events
                .send(Event::Token {
                    task: self.task,
                    index,
                    text,
                    last,
                })
                .ok();
            if !last {
                due = self.wait_until(due, self.token_time(running)).await;
            }
        }
        let slot = seat.slot().unwrap_or_default();
        seat.finish(self.plan.finish);
        self.events
            .send(Event::Done {
                task: self.task,
                slot,
            })
            .ok();
    }

    fn prefill_time(&self, tokens: usize) -> Duration {
        time_for(tokens as f64 / self.core.config.prefill_tokens_per_second)
    }

    fn token_time(&self, running: usize) -> Duration {
        let others = running.saturating_sub(1) as f64;
        time_for(
            (1.0 + self.core.config.decode_slowdown * others) / self.core.config.decode_tokens_per_second,
        )
    }

    async fn prefill(&self, tokens: usize, from: Instant) -> Instant {
        self.wait_until(from, self.prefill_time(tokens)).await
    }

    /// Waits until `time` after `from`. Deadlines add up, so a coarse timer does not slow the whole down.
    async fn wait_until(&self, from: Instant, time: Duration) -> Instant {
        let due = from.checked_add(time).unwrap_or(from);
        if due > Instant::now() {
            sleep_until(due).await;
        } else {
            // Work that costs no time must still let others have theirs.
            tokio::task::yield_now().await;
        }
        due
    }
}

/// Seconds as a duration; what is out of range costs a year.
fn time_for(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(365 * 24 * 3600))
}
