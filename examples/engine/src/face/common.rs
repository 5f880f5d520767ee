//! What do both faces say alike?

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Voice, answer_id};
use crate::config::Face;
use crate::inference::{Job, Made};
use crate::text;
use crate::work::Event;

/// The last event of OpenAI's streams.
pub(crate) const DONE: &str = "data: [DONE]\n\n";

/// Numbers in an embedding.
const DIMENSIONS: usize = 64;

/// An event of a stream.
pub(crate) fn data(value: &Value) -> Bytes {
    Bytes::from(format!("data: {value}\n\n"))
}

/// An event that also has a name: its own `type`.
fn named(value: &Value) -> Bytes {
    let name = value["type"].as_str().unwrap_or_default();
    Bytes::from(format!("event: {name}\ndata: {value}\n\n"))
}

fn first_text(made: &[Made]) -> &str {
    made.first().map_or("", |made| &made.text)
}

fn stop_reason(job: &Job) -> &'static str {
    if job.finish_reason(0) == "stop" {
        "end_turn"
    } else {
        "max_tokens"
    }
}

/// Token counts in the words of Anthropic's interface.
fn messages_usage(face: Face, job: &Job, output: usize) -> Value {
    let mut usage = json!({ "input_tokens": job.prompt_tokens(), "output_tokens": output });
    if face == Face::Llamacpp {
        usage["cache_read_input_tokens"] = json!(0);
    }
    usage
}

pub(crate) fn messages(face: Face, job: &Job, made: &[Made]) -> Value {
    json!({
        "id": answer_id(face, job),
        "type": "message",
        "role": "assistant",
        "content": [{ "type": "text", "text": first_text(made) }],
        "model": job.model,
        "stop_reason": stop_reason(job),
        "stop_sequence": null,
        "usage": messages_usage(face, job, job.output_tokens()),
    })
}

/// Anthropic's stream.
pub(crate) struct MessagesVoice {
    face: Face,
    opened: bool,
}

impl MessagesVoice {
    pub(crate) fn new(face: Face) -> Self {
        Self { face, opened: false }
    }

    fn open(&mut self, job: &Job, out: &mut VecDeque<Bytes>) {
        if std::mem::replace(&mut self.opened, true) {
            return;
        }
        let mut message = messages(self.face, job, &[]);
        message["content"] = json!([]);
        message["stop_reason"] = Value::Null;
        message["usage"] = messages_usage(self.face, job, 0);
        out.push_back(named(&json!({ "type": "message_start", "message": message })));
        let block = json!({ "type": "text", "text": "" });
        out.push_back(named(
            &json!({ "type": "content_block_start", "content_block": block, "index": 0 }),
        ));
    }
}

impl Voice for MessagesVoice {
    fn say(&mut self, job: &Job, event: &Event, out: &mut VecDeque<Bytes>) {
        self.open(job, out);
        if let Event::Token { text, .. } = event {
            let delta = json!({ "type": "text_delta", "text": text });
            out.push_back(named(
                &json!({ "type": "content_block_delta", "delta": delta, "index": 0 }),
            ));
        }
    }

    fn end(&mut self, job: &Job, out: &mut VecDeque<Bytes>) {
        self.open(job, out);
        let delta = json!({ "stop_reason": stop_reason(job), "stop_sequence": null });
        let usage = messages_usage(self.face, job, job.output_tokens());
        out.push_back(named(&json!({ "type": "content_block_stop", "index": 0 })));
        out.push_back(named(
            &json!({ "type": "message_delta", "delta": delta, "usage": usage }),
        ));
        out.push_back(named(&json!({ "type": "message_stop" })));
    }
}

fn response_id(face: Face, job: &Job, prefix: &str) -> String {
    let seed = text::digest(job.id_seed, prefix.as_bytes());
    match face {
        Face::Llamacpp => format!("{prefix}_{}", text::letters(seed, 32)),
        Face::Vllm => format!("{prefix}_{}", text::hexadecimal(seed)),
    }
}

pub(crate) fn responses(face: Face, job: &Job, made: &[Made]) -> Value {
    let (input, output) = (job.prompt_tokens(), job.output_tokens());
    let part = json!({ "type": "output_text", "annotations": [], "logprobs": [], "text": first_text(made) });
    json!({
        "id": response_id(face, job, "resp"),
        "object": "response",
        "created_at": job.created,
        "completed_at": job.created,
        "model": job.model,
        "status": "completed",
        "output": [{
            "id": response_id(face, job, "msg"),
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [part],
        }],
        "usage": {
            "input_tokens": input,
            "output_tokens": output,
            "total_tokens": input + output,
            "input_tokens_details": { "cached_tokens": 0 },
        },
    })
}

/// The stream of OpenAI's responses.
pub(crate) struct ResponsesVoice {
    face: Face,
    text: String,
    sequence: u64,
}

impl ResponsesVoice {
    pub(crate) fn new(face: Face) -> Self {
        Self {
            face,
            text: String::new(),
            sequence: 0,
        }
    }

    fn send(&mut self, mut value: Value, out: &mut VecDeque<Bytes>) {
        value["sequence_number"] = json!(self.sequence);
        self.sequence += 1;
        out.push_back(named(&value));
    }

    fn open(&mut self, job: &Job, out: &mut VecDeque<Bytes>) {
        if self.sequence > 0 {
            return;
        }
        let mut response = responses(self.face, job, &[]);
        response["output"] = json!([]);
        response["status"] = json!("in_progress");
        response["completed_at"] = Value::Null;
        response["usage"] = Value::Null;
        self.send(json!({ "type": "response.created", "response": response }), out);
    }
}

impl Voice for ResponsesVoice {
    fn say(&mut self, job: &Job, event: &Event, out: &mut VecDeque<Bytes>) {
        self.open(job, out);
        if let Event::Token { text, .. } = event {
            self.text.push_str(text);
            let item = response_id(self.face, job, "msg");
            let delta = json!({
                "type": "response.output_text.delta",
                "item_id": item,
                "output_index": 0,
                "content_index": 0,
                "delta": text,
            });
            self.send(delta, out);
        }
    }

    fn end(&mut self, job: &Job, out: &mut VecDeque<Bytes>) {
        self.open(job, out);
        let made = Made {
            text: std::mem::take(&mut self.text),
            slot: 0,
        };
        let done = json!({
            "type": "response.output_text.done",
            "item_id": response_id(self.face, job, "msg"),
            "output_index": 0,
            "content_index": 0,
            "text": made.text,
        });
        self.send(done, out);
        let response = responses(self.face, job, &[made]);
        self.send(json!({ "type": "response.completed", "response": response }), out);
    }
}

fn read_usage(job: &Job) -> Value {
    json!({ "prompt_tokens": job.prompt_tokens(), "total_tokens": job.prompt_tokens() })
}

/// One value for each task, made from its place and the seed of its text.
fn for_each_task(job: &Job, make: impl Fn(usize, u64) -> Value) -> Value {
    job.plans
        .iter()
        .enumerate()
        .map(|(index, plan)| make(index, plan.seed))
        .collect()
}

pub(crate) fn embeddings(face: Face, job: &Job) -> Value {
    let data = for_each_task(job, |index, seed| {
        let row = text::vector(seed, DIMENSIONS);
        json!({ "object": "embedding", "index": index, "embedding": row })
    });
    let mut answer = json!({ "object": "list", "model": job.model, "data": data, "usage": read_usage(job) });
    if face == Face::Vllm {
        answer["id"] = json!(format!("embd-{}", text::hexadecimal(job.id_seed)));
        answer["created"] = json!(job.created);
    }
    answer
}

/// llama.cpp's own shape: one row of numbers for each pooled sequence.
pub(crate) fn native_embeddings(job: &Job) -> Value {
    for_each_task(job, |index, seed| {
        let row = text::vector(seed, DIMENSIONS);
        json!({ "index": index, "embedding": [row] })
    })
}

pub(crate) fn rerank(job: &Job) -> Value {
    let results = for_each_task(
        job,
        |index, seed| json!({ "index": index, "relevance_score": text::unit(seed) }),
    );
    json!({ "model": job.model, "object": "list", "usage": read_usage(job), "results": results })
}
