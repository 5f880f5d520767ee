//! How does a task hold its place, and how does it give it up?

use std::sync::Arc;

use tokio::sync::Notify;

use super::{Finish, Scheduler, State, Step};

/// A task's place: waiting, then running. Dropping it gives the place up.
#[derive(Debug)]
pub(crate) struct Seat {
    scheduler: Arc<Scheduler>,
    id: u64,
    wake: Arc<Notify>,
}

impl Seat {
    pub(super) fn new(scheduler: Arc<Scheduler>, id: u64, wake: Arc<Notify>) -> Self {
        Self { scheduler, id, wake }
    }

    /// Waits until the task runs.
    pub(crate) async fn admitted(&self) {
        while self.is_waiting() {
            self.wake.notified().await;
        }
    }

    fn is_waiting(&self) -> bool {
        self.scheduler
            .state()
            .tasks
            .get(&self.id)
            .is_some_and(|task| task.slot.is_none())
    }

    /// The slot that the task runs in.
    pub(crate) fn slot(&self) -> Option<usize> {
        self.scheduler
            .state()
            .tasks
            .get(&self.id)
            .and_then(|task| task.slot)
    }

    /// Notes that the prompt was processed.
    pub(crate) fn prefilled(&self, seconds: f64) {
        let mut state = self.scheduler.state();
        let State { tasks, meters, .. } = &mut *state;
        if let Some(task) = tasks.get(&self.id) {
            meters.prefilled(task.demand.prompt_tokens, seconds);
        }
    }

    /// Generates one token.
    pub(crate) fn decode(&self) -> Step {
        let mut state = self.scheduler.state();
        let step = state.decode(&self.scheduler.limits, self.id);
        if step == Step::Preempted {
            state.settle(&self.scheduler.limits, self.scheduler.clock.unix());
        }
        step
    }

    /// Ends the task.
    pub(crate) fn finish(self, finish: Finish) {
        self.end(finish);
    }

    fn end(&self, finish: Finish) {
        let mut state = self.scheduler.state();
        state.vacate(self.id);
        state.waiting.retain(|id| *id != self.id);
        if let Some(task) = state.tasks.remove(&self.id) {
            state
                .meters
                .finished(finish, task.demand.prompt_tokens, task.decoded, &task.times);
            state.settle(&self.scheduler.limits, self.scheduler.clock.unix());
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.end(Finish::Abort);
    }
}
