//! In which words does vLLM answer a request for work?

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::ask::Kind;
use crate::face::Voice;
use crate::face::common::{DONE, data};
use crate::inference::{Job, Made};
use crate::text;
use crate::work::Event;

const FINGERPRINT: &str = "vllm-0.32.0-simulated";

pub(crate) fn answer_id(job: &Job) -> String {
    let prefix = if job.kind == Kind::Completions {
        "cmpl"
    } else {
        "chatcmpl"
    };
    match &job.request_id {
        Some(id) => format!("{prefix}-{id}"),
        None => format!("{prefix}-{}", text::hexadecimal(job.id_seed)),
    }
}

fn usage(job: &Job, output: usize) -> Value {
    let prompt = job.prompt_tokens();
    json!({
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "completion_tokens": output,
        "prompt_tokens_details": null,
        "completion_tokens_details": null,
    })
}

fn envelope(job: &Job, object: &str, choices: Value) -> Value {
    json!({
        "id": answer_id(job),
        "object": object,
        "created": job.created,
        "model": job.model,
        "choices": choices,
    })
}

/// The answer to a request that is not streamed.
pub(crate) fn whole(job: &Job, made: &[Made]) -> Value {
    let choice = |(index, made): (usize, &Made)| {
        let mut choice = json!({
            "index": index,
            "logprobs": null,
            "finish_reason": job.finish_reason(index),
            "stop_reason": null,
            "token_ids": null,
        });
        if job.kind == Kind::Chat {
            choice["message"] = json!({
                "role": "assistant", "content": made.text, "refusal": null, "annotations": null,
                "audio": null, "function_call": null, "reasoning": null,
            });
        } else {
            choice["text"] = json!(made.text);
            choice["prompt_logprobs"] = Value::Null;
        }
        choice
    };
    let object = if job.kind == Kind::Chat {
        "chat.completion"
    } else {
        "text_completion"
    };
    let mut answer = envelope(job, object, made.iter().enumerate().map(choice).collect());
    answer["service_tier"] = Value::Null;
    answer["system_fingerprint"] = json!(FINGERPRINT);
    answer["usage"] = usage(job, job.output_tokens());
    answer["kv_transfer_params"] = Value::Null;
    answer
}

/// vLLM's streams: chat and completions.
#[derive(Debug, Default)]
pub(crate) struct VllmVoice {
    spoken: usize,
}

impl VllmVoice {
    fn chunk(&self, job: &Job, choice: Value, out: &mut VecDeque<Bytes>) {
        let object = if job.kind == Kind::Chat {
            "chat.completion.chunk"
        } else {
            "text_completion"
        };
        let ends = !choice["finish_reason"].is_null();
        let mut chunk = envelope(job, object, json!([choice]));
        if job.ask.include_usage && job.ask.continuous_usage {
            chunk["usage"] = usage(job, self.spoken);
        }
        if ends {
            chunk["system_fingerprint"] = json!(FINGERPRINT);
        }
        out.push_back(data(&chunk));
    }
}

impl Voice for VllmVoice {
    fn say(&mut self, job: &Job, event: &Event, out: &mut VecDeque<Bytes>) {
        let Event::Token {
            task,
            index,
            text,
            last,
        } = event
        else {
            return;
        };
        let is_chat = job.kind == Kind::Chat;
        if is_chat && *index == 0 {
            let delta = json!({ "role": "assistant", "content": "" });
            let first = json!({ "index": task, "delta": delta, "logprobs": null, "finish_reason": null });
            self.chunk(job, first, out);
        }
        self.spoken += 1;
        let mut choice = json!({
            "index": task,
            "logprobs": null,
            "finish_reason": last.then(|| job.finish_reason(*task)),
            "token_ids": null,
        });
        if is_chat {
            choice["delta"] = json!({ "content": text });
        } else {
            choice["text"] = json!(text);
        }
        if *last || !is_chat {
            choice["stop_reason"] = Value::Null;
        }
        self.chunk(job, choice, out);
    }

    fn end(&mut self, job: &Job, out: &mut VecDeque<Bytes>) {
        if job.ask.include_usage {
            let object = if job.kind == Kind::Chat {
                "chat.completion.chunk"
            } else {
                "text_completion"
            };
            let mut last = envelope(job, object, json!([]));
            last["usage"] = usage(job, job.output_tokens());
            last["system_fingerprint"] = json!(FINGERPRINT);
            out.push_back(data(&last));
        }
        out.push_back(Bytes::from_static(DONE.as_bytes()));
    }
}
