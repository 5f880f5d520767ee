//! How does a request for the model's work become tasks, and their tokens an answer?

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::ask::{Ask, Kind, Prompt};
use crate::config::Face;
use crate::core::Core;
use crate::face::{self, Voice};
use crate::reply::Reply;
use crate::schedule::{Demand, Finish};
use crate::serve::Call;
use crate::text;
use crate::wire::body::Source;
use crate::work::{self, Event, Manner, TaskPlan};

/// A request on its way through the model.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) kind: Kind,
    pub(crate) ask: Ask,
    /// The name the answer gives its model.
    pub(crate) model: String,
    /// What ids are drawn from.
    pub(crate) id_seed: u64,
    /// The caller's own id, where the face takes it over.
    pub(crate) request_id: Option<String>,
    /// Unix second of the answer.
    pub(crate) created: u64,
    pub(crate) plans: Vec<TaskPlan>,
    pub(crate) speeds: Speeds,
    /// Whether the answer must not tell which slot it came from.
    pub(crate) hide_slot: bool,
}

/// Tokens in a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Speeds {
    pub(crate) prefill: f64,
    pub(crate) decode: f64,
}

/// What one task has made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Made {
    pub(crate) text: String,
    pub(crate) slot: usize,
}

impl Job {
    pub(crate) fn prompt(&self, task: usize) -> Option<&Prompt> {
        self.ask.prompts.get(task / self.ask.n.max(1))
    }

    /// Tokens of all prompts, each counted once.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.ask.prompts.iter().map(|prompt| prompt.tokens).sum()
    }

    pub(crate) fn output_tokens(&self) -> usize {
        self.plans.iter().map(|plan| plan.demand.output_tokens).sum()
    }

    /// The word for how a task ended.
    pub(crate) fn finish_reason(&self, task: usize) -> &'static str {
        match self.plans.get(task).map(|plan| plan.finish) {
            Some(Finish::Stop) => "stop",
            _ => "length",
        }
    }
}

/// Answers a request for work.
pub(crate) async fn answer(core: &Arc<Core>, call: &Call, kind: Kind, manner: Manner) -> Reply {
    let job = match plan(core, call, kind) {
        Ok(job) => job,
        Err(reply) => return *reply,
    };
    let Ok(mut events) = work::start(core, &job.plans, manner) else {
        return face::queue_full(core.config.face);
    };
    if !job.ask.stream {
        return face::whole(core.config.face, &job, &collect(&job, events).await);
    }
    // llama.cpp sends no header before it has a token; vLLM sends it at once.
    let first = match core.config.face {
        Face::Vllm if !manner.stall => None,
        _ => events.recv().await,
    };
    let mut source = Spoken {
        voice: face::voice(core.config.face, kind),
        ready: VecDeque::new(),
        job,
        events,
        ended: false,
    };
    if let Some(event) = first {
        source.hear(&event);
    }
    Reply::stream(Box::new(source))
}

fn plan(core: &Core, call: &Call, kind: Kind) -> Result<Job, Box<Reply>> {
    let face = core.config.face;
    face::check_media_type(face, call)?;
    let ask = Ask::read(kind, &call.body).map_err(|error| face::bad_body(face, &error))?;
    let (model, adapter) = face::resolve_model(core, &ask)?;
    face::check_length(core, &ask)?;
    let mut plans = Vec::with_capacity(ask.prompts.len() * ask.n);
    for prompt in &ask.prompts {
        for copy in 0..ask.n {
            plans.push(task(core, &ask, kind, prompt, copy, adapter.clone()));
        }
    }
    let request_id = call
        .parts
        .headers
        .get("x-request-id")
        .and_then(|id| id.to_str().ok())
        .map(str::to_owned);
    Ok(Job {
        kind,
        model,
        id_seed: core.id_seed(call.path(), &call.body),
        request_id,
        created: core.clock.stamp(),
        plans,
        speeds: Speeds {
            prefill: core.config.prefill_tokens_per_second,
            decode: core.config.decode_tokens_per_second,
        },
        hide_slot: core.config.fixed_ids,
        ask,
    })
}

fn task(
    core: &Core,
    ask: &Ask,
    kind: Kind,
    prompt: &Prompt,
    copy: usize,
    adapter: Option<Arc<str>>,
) -> TaskPlan {
    let model_seed = text::digest(
        core.config.seed,
        adapter.as_deref().unwrap_or_default().as_bytes(),
    );
    let seed = text::digest(model_seed, prompt.text.as_bytes()) ^ text::mix(copy as u64);
    let room = core
        .config
        .longest_sequence()
        .saturating_sub(prompt.tokens)
        .max(1);
    let (wanted, finish) = match ask.max_tokens {
        Some(limit) => (limit.max(1), Finish::Length),
        None => {
            let most = core.config.default_max_tokens.max(1);
            (most - (seed % (most as u64 / 2 + 1)) as usize, Finish::Stop)
        }
    };
    let finish = if wanted > room { Finish::Length } else { finish };
    let output_tokens = if kind.generates() { wanted.min(room) } else { 0 };
    TaskPlan {
        demand: Demand {
            adapter,
            prompt_tokens: prompt.tokens,
            output_tokens,
        },
        seed,
        finish,
    }
}

/// Waits for all tasks.
async fn collect(job: &Job, mut events: UnboundedReceiver<Event>) -> Vec<Made> {
    let mut made = vec![Made::default(); job.plans.len()];
    while let Some(event) = events.recv().await {
        match event {
            Event::Token { task, text, .. } => {
                if let Some(made) = made.get_mut(task) {
                    made.text.push_str(&text);
                }
            }
            Event::Done { task, slot } => {
                if let Some(made) = made.get_mut(task) {
                    made.slot = slot;
                }
            }
        }
    }
    made
}

/// A stream of events, put into a face's words.
struct Spoken {
    job: Job,
    voice: Box<dyn Voice>,
    events: UnboundedReceiver<Event>,
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl Spoken {
    fn hear(&mut self, event: &Event) {
        self.voice.say(&self.job, event, &mut self.ready);
    }
}

impl Source for Spoken {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                return Poll::Ready(Some(bytes));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            match self.events.poll_recv(cx) {
                Poll::Ready(Some(event)) => self.hear(&event),
                Poll::Ready(None) => {
                    self.ended = true;
                    self.voice.end(&self.job, &mut self.ready);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
