//! How do llama.cpp's pages about itself look?

use http::StatusCode;
use serde_json::{Value, json};

use super::error;
use crate::core::Core;
use crate::reply::Reply;
use crate::schedule::SlotView;
use crate::text;

/// The sampling settings that are in force where a request says nothing.
pub(super) fn sampling(max_tokens: i64, stream: bool) -> Value {
    json!({
        "seed": 4_294_967_295_u32, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
        "repeat_last_n": 64, "repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
        "max_tokens": max_tokens, "n_predict": max_tokens, "n_keep": 0, "ignore_eos": false,
        "stream": stream, "n_probs": 0, "stop": [], "samplers": ["top_k", "top_p", "min_p", "temperature"],
        "timings_per_token": false, "lora": [],
    })
}

fn slot(core: &Core, id: usize, view: Option<&SlotView>) -> Value {
    let mut slot = json!({
        "id": id,
        "n_ctx": core.config.context_tokens,
        "speculative": false,
        "is_processing": view.is_some_and(|view| view.busy),
    });
    if let Some(view) = view {
        let limit = i64::try_from(view.decoded + view.remaining).unwrap_or(-1);
        slot["id_task"] = json!(view.task);
        slot["n_prompt_tokens"] = json!(view.prompt_tokens);
        slot["n_prompt_tokens_processed"] = json!(view.prompt_tokens);
        slot["n_prompt_tokens_cache"] = json!(0);
        slot["params"] = sampling(limit, false);
        slot["next_token"] = json!([{
            "has_next_token": view.busy,
            "has_new_line": false,
            "n_remain": view.remaining,
            "n_decoded": view.decoded,
        }]);
    }
    slot
}

pub(super) fn slots(core: &Core, query: &str) -> Reply {
    let views = core.scheduler.slots();
    let free = views
        .iter()
        .any(|view| !view.as_ref().is_some_and(|view| view.busy));
    if !free && query.split('&').any(|pair| pair.starts_with("fail_on_no_slot=")) {
        return error(StatusCode::SERVICE_UNAVAILABLE, "no slot available");
    }
    let slots: Value = views
        .iter()
        .enumerate()
        .map(|(id, view)| slot(core, id, view.as_ref()))
        .collect();
    Reply::ok(&slots)
}

pub(super) fn props(core: &Core) -> Value {
    json!({
        "default_generation_settings": { "params": sampling(-1, false), "n_ctx": core.config.context_tokens },
        "total_slots": core.config.slots,
        "model_alias": core.config.model,
        "model_ftype": "all F32",
        "model_path": format!("/models/{}.gguf", core.config.model),
        "modalities": { "vision": false, "video": false, "audio": false },
        "endpoint_slots": true,
        "endpoint_props": true,
        "endpoint_metrics": true,
        "ui": false,
        "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
        "chat_template_caps": { "supports_string_content": true, "supports_system_role": true },
        "bos_token": "<s>",
        "eos_token": "</s>",
        "build_info": "simulated",
        "is_sleeping": false,
    })
}

fn model(core: &Core, name: &str) -> Value {
    json!({
        "id": name, "aliases": [name], "tags": [], "object": "model",
        "architecture": { "input_modalities": ["text"], "output_modalities": ["text"] },
        "created": core.clock.stamp(), "owned_by": "llamacpp",
        "meta": {
            "vocab_type": 1, "n_vocab": 32_000, "n_ctx": core.config.context_tokens,
            "n_ctx_train": core.config.context_tokens, "n_embd": 64, "n_params": 139_584,
            "size": 558_336, "ftype": "all F32",
        },
    })
}

fn model_for_ollama(name: &str) -> Value {
    json!({
        "name": name, "model": name, "modified_at": "", "size": "", "digest": "", "type": "model",
        "description": "", "tags": [""], "capabilities": ["completion"], "parameters": "",
        "details": {
            "parent_model": "", "format": "gguf", "family": "", "families": [""],
            "parameter_size": "", "quantization_level": "",
        },
    })
}

/// The list of models, or of these names in their place.
pub(super) fn models(core: &Core, names: Option<&[String]>) -> Value {
    let own = [core.config.model.clone()];
    let names = names.unwrap_or(&own);
    json!({
        "models": names.iter().map(|name| model_for_ollama(name)).collect::<Value>(),
        "object": "list",
        "data": names.iter().map(|name| model(core, name)).collect::<Value>(),
    })
}

pub(super) fn adapters(core: &Core) -> Value {
    let adapters = core.adapters();
    let one = |(id, adapter): (usize, &crate::core::Adapter)| {
        json!({
            "id": id, "path": adapter.path, "scale": adapter.scale, "task_name": "", "prompt_prefix": "",
        })
    };
    adapters.iter().enumerate().map(one).collect()
}

/// Sets the adapters' scales; one that is not named gets none.
pub(super) fn scale_adapters(core: &Core, body: &[u8]) -> Reply {
    let Ok(Value::Array(wanted)) = serde_json::from_slice(body) else {
        return error(StatusCode::BAD_REQUEST, "Request body must be an array");
    };
    for (id, adapter) in core.adapters().iter_mut().enumerate() {
        let entry = wanted
            .iter()
            .find(|entry| entry["id"].as_u64() == Some(id as u64));
        adapter.scale = entry.and_then(|entry| entry["scale"].as_f64()).unwrap_or(0.0);
    }
    Reply::ok(&json!({ "success": true }))
}

pub(super) fn tokenize(core: &Core, body: &[u8]) -> Reply {
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => {
            let content = value["content"].as_str().unwrap_or_default();
            Reply::ok(&json!({ "tokens": text::token_ids(core.config.seed, content) }))
        }
        Err(fault) => error(
            StatusCode::BAD_REQUEST,
            &format!("the body is not valid JSON: {fault}"),
        ),
    }
}
