//! Which task runs now, and which must wait?
//!
//! One scheduler serves both faces. Tasks wait in the order they came. llama.cpp's limit is its slots;
//! vLLM's are the batch, the KV-cache blocks and the adapters in one batch. As in vLLM a task whose adapter
//! has no place is passed over, while a task that lacks blocks holds up those behind it, and a running task
//! that needs one more block takes it from the youngest.

mod seat;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::meters::{Meters, Times};

pub(crate) use seat::Seat;

/// Adapter series that are remembered; the oldest go first.
const MAX_ADAPTER_SERIES: usize = 1_000;

/// What an engine has room for.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) running: usize,
    /// Tasks that may wait.
    pub(crate) queued: Option<usize>,
    pub(crate) blocks: Option<Blocks>,
    /// Distinct adapters that may run at once.
    pub(crate) adapters: Option<usize>,
    /// Whether waiting adapters are named in the series of adapters.
    pub(crate) list_waiting_adapters: bool,
}

/// The KV cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    pub(crate) total: usize,
    /// Tokens in each.
    pub(crate) size: usize,
}

/// What one task asks for.
#[derive(Debug, Clone)]
pub(crate) struct Demand {
    pub(crate) adapter: Option<Arc<str>>,
    pub(crate) prompt_tokens: usize,
    pub(crate) output_tokens: usize,
}

/// Why a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Finish {
    /// The model was done.
    Stop,
    /// The limit of tokens was reached.
    Length,
    /// The client left.
    Abort,
}

/// What happened to a task that wanted one more token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// It has the token; this many tasks run.
    Decoded { running: usize },
    /// Its blocks went to others: it waits again, and must then process all its tokens anew.
    Preempted,
}

/// What a slot shows: its current task, or its last one.
#[derive(Debug, Clone)]
pub(crate) struct SlotView {
    pub(crate) busy: bool,
    pub(crate) task: u64,
    pub(crate) prompt_tokens: usize,
    pub(crate) decoded: usize,
    pub(crate) remaining: usize,
}

/// How the engine stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    pub(crate) running: usize,
    pub(crate) waiting_for_capacity: usize,
    pub(crate) waiting_for_adapter: usize,
    pub(crate) used_blocks: usize,
    pub(crate) max_running: usize,
    pub(crate) max_waiting: usize,
}

impl Load {
    pub(crate) fn waiting(&self) -> usize {
        self.waiting_for_capacity + self.waiting_for_adapter
    }
}

/// The limit of waiting tasks is reached.
#[derive(Debug)]
pub(crate) struct QueueFull;

/// Gives tasks their turn.
#[derive(Debug)]
pub(crate) struct Scheduler {
    limits: Limits,
    clock: Arc<Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    tasks: BTreeMap<u64, Task>,
    waiting: VecDeque<u64>,
    slots: Vec<Option<SlotView>>,
    used_blocks: usize,
    max_running: usize,
    max_waiting: usize,
    meters: Meters,
    /// From (running, waiting) adapters to when they were last so.
    adapter_series: BTreeMap<(String, String), f64>,
}

#[derive(Debug)]
struct Task {
    demand: Demand,
    wake: Arc<Notify>,
    decoded: usize,
    blocks: usize,
    slot: Option<usize>,
    times: Times,
}

impl Scheduler {
    pub(crate) fn new(limits: Limits, clock: Arc<Clock>) -> Arc<Self> {
        let state = State {
            slots: vec![None; limits.running],
            ..State::default()
        };
        Arc::new(Self {
            limits,
            clock,
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues tasks, and starts those that there is room for.
    pub(crate) fn submit(self: &Arc<Self>, demands: Vec<Demand>) -> Result<Vec<Seat>, QueueFull> {
        let mut state = self.state();
        let would_wait = !state.waiting.is_empty() || state.running() >= self.limits.running;
        if would_wait
            && self
                .limits
                .queued
                .is_some_and(|limit| state.waiting.len() >= limit)
        {
            state.meters.rejected += 1;
            return Err(QueueFull);
        }
        let seats = demands
            .into_iter()
            .map(|demand| state.enqueue(self, demand))
            .collect();
        state.settle(&self.limits, self.clock.unix());
        Ok(seats)
    }

    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        let running = state.running_adapters();
        let deferred = state
            .waiting
            .iter()
            .filter(|id| !state.adapter_fits(&self.limits, &running, **id))
            .count();
        Load {
            running: state.running(),
            waiting_for_capacity: state.waiting.len() - deferred,
            waiting_for_adapter: deferred,
            used_blocks: state.used_blocks,
            max_running: state.max_running,
            max_waiting: state.max_waiting,
        }
    }

    pub(crate) fn slots(&self) -> Vec<Option<SlotView>> {
        self.state().slots.clone()
    }

    pub(crate) fn meters(&self) -> Meters {
        self.state().meters.clone()
    }

    /// The adapter series so far, each with the Unix time at which it was last true.
    pub(crate) fn adapter_series(&self) -> Vec<(String, String, f64)> {
        let state = self.state();
        state
            .adapter_series
            .iter()
            .map(|((run, wait), at)| (run.clone(), wait.clone(), *at))
            .collect()
    }
}

impl State {
    fn running(&self) -> usize {
        self.tasks.len() - self.waiting.len()
    }

    fn enqueue(&mut self, scheduler: &Arc<Scheduler>, demand: Demand) -> Seat {
        let id = self.next;
        self.next += 1;
        let wake = Arc::new(Notify::new());
        let times = Times::queued_at(Instant::now());
        self.tasks.insert(
            id,
            Task {
                demand,
                wake: wake.clone(),
                decoded: 0,
                blocks: 0,
                slot: None,
                times,
            },
        );
        self.waiting.push_back(id);
        Seat::new(scheduler.clone(), id, wake)
    }

    /// Starts what can start, and notes how things stand.
    fn settle(&mut self, limits: &Limits, unix: f64) {
        self.admit(limits);
        self.max_running = self.max_running.max(self.running());
        self.max_waiting = self.max_waiting.max(self.waiting.len());
        if limits.adapters.is_some() {
            let name = |names: BTreeSet<Arc<str>>| names.into_iter().collect::<Vec<_>>().join(",");
            let running = name(self.running_adapters());
            let waiting = if limits.list_waiting_adapters {
                name(self.waiting_adapters())
            } else {
                running.clone()
            };
            self.note_adapters(running, waiting, unix);
        }
    }

    fn note_adapters(&mut self, running: String, waiting: String, unix: f64) {
        self.adapter_series.insert((running, waiting), unix);
        if self.adapter_series.len() > MAX_ADAPTER_SERIES {
            let oldest = self
                .adapter_series
                .iter()
                .min_by(|a, b| a.1.total_cmp(b.1))
                .map(|(key, _)| key.clone());
            if let Some(key) = oldest {
                self.adapter_series.remove(&key);
            }
        }
    }

    fn admit(&mut self, limits: &Limits) {
        let mut running = self.running_adapters();
        let mut place = 0;
        while let Some(&id) = self.waiting.get(place) {
            let Some(slot) = self
                .slots
                .iter()
                .position(|slot| !slot.as_ref().is_some_and(|view| view.busy))
            else {
                return;
            };
            if !self.adapter_fits(limits, &running, id) {
                place += 1;
                continue;
            }
            let Some(task) = self.tasks.get_mut(&id) else {
                self.waiting.remove(place);
                continue;
            };
            // One that was preempted comes back only where its next token fits, or it would go again.
            let tokens = task.demand.prompt_tokens + task.decoded + usize::from(task.decoded > 0);
            let blocks = limits.blocks.map_or(0, |blocks| tokens.div_ceil(blocks.size));
            if limits
                .blocks
                .is_some_and(|all| self.used_blocks + blocks > all.total)
            {
                return;
            }
            self.used_blocks += blocks;
            task.blocks = blocks;
            task.slot = Some(slot);
            task.times.started_at(Instant::now());
            self.slots[slot] = Some(SlotView {
                busy: true,
                task: id,
                prompt_tokens: task.demand.prompt_tokens,
                decoded: task.decoded,
                remaining: task.demand.output_tokens.saturating_sub(task.decoded),
            });
            running.extend(task.demand.adapter.clone());
            task.wake.notify_one();
            self.waiting.remove(place);
        }
    }

    fn adapters_of<'a>(&'a self, running: bool) -> impl Iterator<Item = Arc<str>> + 'a {
        let tasks = self
            .tasks
            .values()
            .filter(move |task| task.slot.is_some() == running);
        tasks.filter_map(|task| task.demand.adapter.clone())
    }

    fn running_adapters(&self) -> BTreeSet<Arc<str>> {
        self.adapters_of(true).collect()
    }

    fn waiting_adapters(&self) -> BTreeSet<Arc<str>> {
        self.adapters_of(false).collect()
    }

    fn adapter_fits(&self, limits: &Limits, running: &BTreeSet<Arc<str>>, id: u64) -> bool {
        match (
            limits.adapters,
            self.tasks.get(&id).and_then(|task| task.demand.adapter.as_ref()),
        ) {
            (Some(most), Some(adapter)) => running.contains(adapter) || running.len() < most,
            _ => true,
        }
    }

    /// Takes a running task's slot and blocks away.
    fn vacate(&mut self, id: u64) {
        if let Some(task) = self.tasks.get_mut(&id) {
            self.used_blocks = self.used_blocks.saturating_sub(task.blocks);
            task.blocks = 0;
            if let Some(view) = task
                .slot
                .take()
                .and_then(|slot| self.slots.get_mut(slot)?.as_mut())
            {
                view.busy = false;
            }
        }
    }

    /// Makes room for one more block of a task; false if the task itself had to give way.
    fn make_room(&mut self, total: usize, id: u64) -> bool {
        while self.used_blocks >= total {
            let youngest = self
                .tasks
                .iter()
                .rev()
                .find(|(_, task)| task.slot.is_some())
                .map(|(id, _)| *id);
            let Some(victim) = youngest else { return false };
            self.vacate(victim);
            self.waiting.push_front(victim);
            self.meters.preemptions += 1;
            if victim == id {
                return false;
            }
        }
        true
    }

    fn decode(&mut self, limits: &Limits, id: u64) -> Step {
        let (needed, held) = match self.tasks.get(&id) {
            Some(task) if task.slot.is_some() => {
                let tokens = task.demand.prompt_tokens + task.decoded + 1;
                (
                    limits.blocks.map_or(0, |blocks| tokens.div_ceil(blocks.size)),
                    task.blocks,
                )
            }
            _ => return Step::Preempted,
        };
        if let Some(blocks) = limits.blocks
            && needed > held
            && !self.make_room(blocks.total, id)
        {
            return Step::Preempted;
        }
        self.used_blocks += needed.saturating_sub(held);
        let running = self.running();
        if let Some(task) = self.tasks.get_mut(&id) {
            task.blocks = task.blocks.max(needed);
            task.decoded += 1;
            task.times.token_at(Instant::now());
            if let Some(view) = task.slot.and_then(|slot| self.slots.get_mut(slot)?.as_mut()) {
                view.decoded = task.decoded;
                view.remaining = task.demand.output_tokens.saturating_sub(task.decoded);
            }
            self.meters
                .decoded(running, task.demand.prompt_tokens + task.decoded, &mut task.times);
        }
        Step::Decoded { running }
    }
}
