//! What has been counted and timed since the start?

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::prometheus::Histogram;
use crate::schedule::Finish;

const TOKENS: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0,
];
const FIRST_TOKEN: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];
const NEXT_TOKEN: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
];
const WHOLE: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
];

/// The moments of one task.
#[derive(Debug)]
pub(crate) struct Times {
    queued: Instant,
    started: Option<Instant>,
    first_token: Option<Instant>,
    last_token: Option<Instant>,
    /// Seconds from the token before to the last one.
    gap: Option<f64>,
}

impl Times {
    pub(crate) fn queued_at(now: Instant) -> Self {
        Self {
            queued: now,
            started: None,
            first_token: None,
            last_token: None,
            gap: None,
        }
    }

    /// A task that is preempted starts more than once; the first time counts.
    pub(crate) fn started_at(&mut self, now: Instant) {
        self.started.get_or_insert(now);
    }

    pub(crate) fn token_at(&mut self, now: Instant) {
        self.first_token.get_or_insert(now);
        self.gap = self.last_token.map(|last| seconds(last, now));
        self.last_token = Some(now);
    }
}

fn seconds(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64()
}

/// Counters and histograms of all tasks.
#[derive(Debug, Clone)]
pub(crate) struct Meters {
    pub(crate) prompt_tokens: u64,
    pub(crate) prompt_seconds: f64,
    pub(crate) generated_tokens: u64,
    pub(crate) generation_seconds: f64,
    /// Steps of the model; tasks that run together share one.
    pub(crate) steps: f64,
    pub(crate) longest_sequence: usize,
    pub(crate) preemptions: u64,
    pub(crate) rejected: u64,
    pub(crate) finished: BTreeMap<Finish, u64>,
    pub(crate) task_prompt_tokens: Histogram,
    pub(crate) task_generated_tokens: Histogram,
    pub(crate) first_token: Histogram,
    pub(crate) next_token: Histogram,
    pub(crate) per_output_token: Histogram,
    pub(crate) whole: Histogram,
    pub(crate) in_queue: Histogram,
    pub(crate) running: Histogram,
    pub(crate) prefill: Histogram,
    pub(crate) decode: Histogram,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            prompt_tokens: 0,
            prompt_seconds: 0.0,
            generated_tokens: 0,
            generation_seconds: 0.0,
            steps: 0.0,
            longest_sequence: 0,
            preemptions: 0,
            rejected: 0,
            finished: BTreeMap::new(),
            task_prompt_tokens: Histogram::new(TOKENS),
            task_generated_tokens: Histogram::new(TOKENS),
            first_token: Histogram::new(FIRST_TOKEN),
            next_token: Histogram::new(NEXT_TOKEN),
            per_output_token: Histogram::new(NEXT_TOKEN),
            whole: Histogram::new(WHOLE),
            in_queue: Histogram::new(WHOLE),
            running: Histogram::new(WHOLE),
            prefill: Histogram::new(WHOLE),
            decode: Histogram::new(WHOLE),
        }
    }
}

impl Meters {
    pub(crate) fn prefilled(&mut self, tokens: usize, seconds: f64) {
        self.prompt_tokens += tokens as u64;
        self.prompt_seconds += seconds;
        self.longest_sequence = self.longest_sequence.max(tokens);
    }

    /// Notes one token of a task that is now `length` tokens long, while `running` tasks run.
    pub(crate) fn decoded(&mut self, running: usize, length: usize, times: &mut Times) {
        self.generated_tokens += 1;
        self.steps += 1.0 / running.max(1) as f64;
        self.longest_sequence = self.longest_sequence.max(length);
        match times.gap.take() {
            Some(gap) => {
                self.generation_seconds += gap;
                self.next_token.observe(gap);
            }
            None => self
                .first_token
                .observe(times.first_token.map_or(0.0, |at| seconds(times.queued, at))),
        }
    }

    pub(crate) fn finished(&mut self, finish: Finish, prompt_tokens: usize, generated: usize, times: &Times) {
        *self.finished.entry(finish).or_default() += 1;
        if finish == Finish::Abort {
            return;
        }
        let end = Instant::now();
        let started = times.started.unwrap_or(end);
        let first = times.first_token.unwrap_or(end);
        self.task_prompt_tokens.observe(prompt_tokens as f64);
        self.task_generated_tokens.observe(generated as f64);
        self.whole.observe(seconds(times.queued, end));
        self.in_queue.observe(seconds(times.queued, started));
        self.running.observe(seconds(started, end));
        self.prefill.observe(seconds(started, first));
        self.decode.observe(seconds(first, end));
        if generated > 1 {
            self.per_output_token
                .observe(seconds(first, end) / (generated - 1) as f64);
        }
    }

    pub(crate) fn ended(&self, finish: Finish) -> u64 {
        self.finished.get(&finish).copied().unwrap_or_default()
    }
}
