//! How do vLLM's pages about itself look, and how are its adapters changed?

use http::StatusCode;
use serde_json::{Value, json};

use super::{bad_body, error};
use crate::ask::AskError;
use crate::core::{Adapter, Core};
use crate::reply::{Content, Reply};
use crate::text;

fn model(core: &Core, name: &str, root: &str, parent: Option<&str>) -> Value {
    let created = core.clock.stamp();
    let id = text::hexadecimal(text::digest(core.config.seed, name.as_bytes()));
    json!({
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": parent.is_none().then(|| core.config.longest_sequence()),
        "permission": [{
            "id": format!("modelperm-{id}"), "object": "model_permission", "created": created,
            "allow_create_engine": false, "allow_sampling": true, "allow_logprobs": true,
            "allow_search_indices": false, "allow_view": true, "allow_fine_tuning": false,
            "organization": "*", "group": null, "is_blocking": false,
        }],
    })
}

/// The list of models, or of these names in their place.
pub(super) fn models(core: &Core, names: Option<&[String]>) -> Value {
    let base = &core.config.model;
    if let Some(names) = names {
        let data: Value = names.iter().map(|name| model(core, name, name, None)).collect();
        return json!({ "object": "list", "data": data });
    }
    let mut data = vec![model(core, base, &format!("/models/{base}"), None)];
    if core.config.max_loras > 0 {
        let adapters = core.adapters();
        data.extend(
            adapters
                .iter()
                .map(|adapter| model(core, &adapter.name, &adapter.path, Some(base))),
        );
    }
    json!({ "object": "list", "data": data })
}

pub(super) fn tokenize(core: &Core, body: &[u8]) -> Reply {
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(fault) => return bad_body(&AskError::Json(fault.to_string())),
    };
    let Some(prompt) = value["prompt"].as_str() else {
        return bad_body(&AskError::Missing("prompt"));
    };
    let tokens = text::token_ids(core.config.seed, prompt);
    let most = core.config.longest_sequence();
    Reply::ok(&json!({ "count": tokens.len(), "max_model_len": most, "tokens": tokens, "token_strs": null }))
}

/// The adapter's name and path in a body.
fn named(body: &[u8]) -> Result<(String, String), AskError> {
    let value: Value = serde_json::from_slice(body).map_err(|fault| AskError::Json(fault.to_string()))?;
    let name = value["lora_name"].as_str().filter(|name| !name.is_empty());
    let name = name.ok_or(AskError::Missing("lora_name"))?.to_owned();
    let path = value["lora_path"].as_str().unwrap_or_default().to_owned();
    Ok((name, path))
}

/// Plain text without a media type, as vLLM answers here.
fn done(text: String) -> Reply {
    Reply {
        content: Content::Whole(text.into()),
        ..Reply::empty()
    }
}

pub(super) fn load_adapter(core: &Core, body: &[u8]) -> Reply {
    let (name, path) = match named(body) {
        Ok((_, path)) if path.is_empty() => return bad_body(&AskError::Missing("lora_path")),
        Ok(named) => named,
        Err(fault) => return bad_body(&fault),
    };
    let mut adapters = core.adapters();
    if name == core.config.model || adapters.iter().any(|known| known.name == name) {
        let text = format!("The lora adapter '{name}' has already been loaded.");
        let mut value = super::error_value(StatusCode::BAD_REQUEST, None, &text);
        value["error"]["type"] = json!("InvalidUserInput");
        return Reply::json(StatusCode::BAD_REQUEST, &value);
    }
    let text = format!("Success: LoRA adapter '{name}' added successfully.");
    adapters.push(Adapter {
        name,
        path,
        scale: 1.0,
    });
    done(text)
}

pub(super) fn unload_adapter(core: &Core, body: &[u8]) -> Reply {
    let (name, _) = match named(body) {
        Ok(named) => named,
        Err(fault) => return bad_body(&fault),
    };
    let mut adapters = core.adapters();
    match adapters.iter().position(|known| known.name == name) {
        Some(place) => {
            adapters.remove(place);
            done(format!("Success: LoRA adapter '{name}' removed successfully."))
        }
        None => error(
            StatusCode::NOT_FOUND,
            None,
            &format!("The lora adapter '{name}' cannot be found."),
        ),
    }
}
