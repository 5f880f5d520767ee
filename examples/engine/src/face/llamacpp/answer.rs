//! In which words does llama.cpp answer a request for work?

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::pages::sampling;
use crate::ask::Kind;
use crate::face::Voice;
use crate::face::common::{DONE, data};
use crate::inference::{Job, Made};
use crate::text;
use crate::work::Event;

const FINGERPRINT: &str = "b0-simulated";

pub(crate) fn answer_id(job: &Job) -> String {
    format!("chatcmpl-{}", text::letters(job.id_seed, 32))
}

/// Milliseconds that tokens take, and how many of them go into a second.
fn pace(tokens: usize, per_second: f64) -> (f64, f64) {
    if per_second.is_finite() {
        (tokens as f64 * 1000.0 / per_second, per_second)
    } else {
        (0.0, 0.0)
    }
}

/// How long a task takes by the model of time, when it runs alone.
fn timings(job: &Job, task: usize) -> Value {
    let (prompt, output) = job.plans.get(task).map_or((0, 0), |plan| {
        (plan.demand.prompt_tokens, plan.demand.output_tokens)
    });
    let (prompt_ms, prompt_rate) = pace(prompt, job.speeds.prefill);
    let (predicted_ms, predicted_rate) = pace(output, job.speeds.decode);
    json!({
        "cache_n": 0,
        "prompt_n": prompt,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / prompt.max(1) as f64,
        "prompt_per_second": prompt_rate,
        "predicted_n": output,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / output.max(1) as f64,
        "predicted_per_second": predicted_rate,
    })
}

fn usage(job: &Job) -> Value {
    let (prompt, output) = (job.prompt_tokens(), job.output_tokens());
    json!({
        "completion_tokens": output,
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "prompt_tokens_details": { "cached_tokens": 0 },
    })
}

/// What all of OpenAI's answers have, with these choices.
fn envelope(job: &Job, object: &str, choices: Value) -> Value {
    json!({
        "choices": choices,
        "created": job.created,
        "id": answer_id(job),
        "model": job.model,
        "system_fingerprint": FINGERPRINT,
        "object": object,
    })
}

/// The answer to a request that is not streamed.
pub(crate) fn whole(job: &Job, made: &[Made]) -> Value {
    let tasks = made.iter().enumerate();
    let mut answer = match job.kind {
        Kind::Native => {
            let mut results: Vec<_> = tasks.map(|(task, made)| native_result(job, task, made)).collect();
            return if results.len() == 1 {
                results.remove(0)
            } else {
                Value::Array(results)
            };
        }
        Kind::Chat => {
            let choice = |(index, made): (usize, &Made)| {
                json!({
                    "finish_reason": job.finish_reason(index),
                    "index": index,
                    "message": { "role": "assistant", "content": made.text },
                })
            };
            envelope(job, "chat.completion", tasks.map(choice).collect())
        }
        _ => {
            let choice = |(index, made): (usize, &Made)| {
                json!({
                    "text": made.text, "index": index, "logprobs": null,
                    "finish_reason": job.finish_reason(index),
                })
            };
            envelope(job, "text_completion", tasks.map(choice).collect())
        }
    };
    answer["usage"] = usage(job);
    answer["timings"] = timings(job, 0);
    answer
}

/// A result of llama.cpp's own completions: a whole one, or the last event of a stream.
fn native_result(job: &Job, task: usize, made: &Made) -> Value {
    let prompt = job.prompt(task);
    let prompt_tokens = prompt.map_or(0, |prompt| prompt.tokens);
    let output = job.plans.get(task).map_or(0, |plan| plan.demand.output_tokens);
    json!({
        "index": task,
        "content": made.text,
        "tokens": [],
        "id_slot": if job.hide_slot { 0 } else { made.slot },
        "stop": true,
        "model": job.model,
        "tokens_predicted": output,
        "tokens_evaluated": prompt_tokens,
        "generation_settings": sampling(i64::try_from(output).unwrap_or(-1), job.ask.stream),
        "prompt": prompt.map_or("", |prompt| &prompt.text),
        "has_new_line": false,
        "truncated": false,
        "stop_type": if job.finish_reason(task) == "stop" { "eos" } else { "limit" },
        "stopping_word": "",
        "tokens_cached": prompt_tokens + output,
        "timings": timings(job, task),
    })
}

/// llama.cpp's streams: chat, completions and its own.
#[derive(Debug)]
pub(crate) struct LlamacppVoice;

impl Voice for LlamacppVoice {
    fn say(&mut self, job: &Job, event: &Event, out: &mut VecDeque<Bytes>) {
        match job.kind {
            Kind::Native => say_native(job, event, out),
            Kind::Chat => say_chat(job, event, out),
            _ => say_completion(job, event, out),
        }
    }

    fn end(&mut self, job: &Job, out: &mut VecDeque<Bytes>) {
        if job.kind == Kind::Native {
            return;
        }
        if job.kind == Kind::Chat && job.ask.include_usage {
            let mut last = envelope(job, "chat.completion.chunk", json!([]));
            last["usage"] = usage(job);
            last["timings"] = timings(job, 0);
            out.push_back(data(&last));
        }
        out.push_back(Bytes::from_static(DONE.as_bytes()));
    }
}

fn say_native(job: &Job, event: &Event, out: &mut VecDeque<Bytes>) {
    out.push_back(data(&match event {
        Event::Token {
            task, index, text, ..
        } => json!({
            "index": task,
            "content": text,
            "tokens": text::token_ids(job.id_seed, text).into_iter().take(1).collect::<Vec<_>>(),
            "stop": false,
            "id_slot": -1,
            "tokens_predicted": index + 1,
            "tokens_evaluated": job.prompt(*task).map_or(0, |prompt| prompt.tokens),
        }),
        Event::Done { task, slot } => native_result(
            job,
            *task,
            &Made {
                text: String::new(),
                slot: *slot,
            },
        ),
    }));
}

fn say_chat(job: &Job, event: &Event, out: &mut VecDeque<Bytes>) {
    let mut chunk = |task: usize, delta: Value, reason: Option<&str>, timings: Option<Value>| {
        let choice = json!([{ "finish_reason": reason, "index": task, "delta": delta }]);
        let mut chunk = envelope(job, "chat.completion.chunk", choice);
        if let Some(timings) = timings {
            chunk["timings"] = timings;
        }
        out.push_back(data(&chunk));
    };
    match event {
        Event::Token {
            task, index, text, ..
        } => {
            if *index == 0 {
                chunk(*task, json!({ "role": "assistant", "content": null }), None, None);
            }
            chunk(*task, json!({ "content": text }), None, None);
        }
        Event::Done { task, .. } => {
            let timings = (!job.ask.include_usage).then(|| timings(job, *task));
            chunk(*task, json!({}), Some(job.finish_reason(*task)), timings);
        }
    }
}

fn say_completion(job: &Job, event: &Event, out: &mut VecDeque<Bytes>) {
    let choice = |task: usize, text: &str, reason: Option<&str>| {
        let choice = json!([{ "text": text, "index": task, "logprobs": null, "finish_reason": reason }]);
        envelope(job, "text_completion", choice)
    };
    out.push_back(data(&match event {
        Event::Token { task, text, .. } => choice(*task, text, None),
        Event::Done { task, .. } => {
            let mut last = choice(*task, "", Some(job.finish_reason(*task)));
            last["usage"] = usage(job);
            last["timings"] = timings(job, *task);
            last
        }
    }));
}
