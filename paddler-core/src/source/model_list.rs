//! Which models does a model list name?

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::answer::json;
use crate::upstream::{Abilities, Capability, ModelEntry};

/// Reads the `data` of an OpenAI model list: ids, aliases (llama.cpp) and parents of adapters (vLLM). Entries without
/// an id are passed over, and so is an id that has been listed already.
///
/// # Errors
/// A few words on what was found instead.
pub(super) fn read(body: &[u8]) -> Result<Vec<ModelEntry>, String> {
    let body: Value = json(body)?;
    entries(&body, "data", &["id"])
}

/// Like [`read`], and where there is no `data` reads `models`, the list in Ollama's manner that llama.cpp has too.
pub(super) fn read_either(body: &[u8]) -> Result<Vec<ModelEntry>, String> {
    let body: Value = json(body)?;
    if body.get("data").is_none() && body.get("models").is_some() {
        entries(&body, "models", &["model", "name"])
    } else {
        entries(&body, "data", &["id"])
    }
}

/// What a list says that its models can do: the longest context of all, where each base model tells one (vLLM), and which of
/// images and sounds some take or none does, where each model tells that (llama.cpp).
pub(super) fn abilities(body: &[u8]) -> Abilities {
    let body: Value = json(body).unwrap_or_default();
    let listed = body.get("data").and_then(Value::as_array);
    let bases: Vec<_> = listed
        .into_iter()
        .flatten()
        .filter(|model| text(model, "parent").is_none())
        .collect();
    let mut abilities = Abilities::default();
    let contexts = bases.iter().map(|model| model.get("max_model_len")?.as_u64());
    let contexts: Option<Vec<_>> = contexts.collect();
    let longest = contexts.and_then(|contexts| contexts.into_iter().max());
    abilities.context = longest
        .and_then(|tokens| u32::try_from(tokens).ok())
        .filter(|tokens| *tokens > 0);
    let inputs = bases
        .iter()
        .map(|model| model.pointer("/architecture/input_modalities")?.as_array());
    let Some(inputs) = inputs
        .collect::<Option<Vec<_>>>()
        .filter(|inputs| !inputs.is_empty())
    else {
        return abilities;
    };
    for (what, word) in [(Capability::Vision, "image"), (Capability::Audio, "audio")] {
        let takes = |inputs: &&Vec<Value>| inputs.iter().any(|input| input == word);
        abilities.can.insert(what, inputs.iter().any(takes));
    }
    abilities
}

fn entries(body: &Value, list: &str, id_keys: &[&str]) -> Result<Vec<ModelEntry>, String> {
    let Some(listed) = body.get(list).and_then(Value::as_array) else {
        return Err(format!("unknown shape: no list `{list}`"));
    };
    let mut seen = HashSet::new();
    let mut entries = Vec::with_capacity(listed.len());
    for model in listed {
        let Some(id) = id_keys.iter().find_map(|key| text(model, key)) else {
            continue;
        };
        if seen.insert(id) {
            entries.push(ModelEntry {
                id: id.into(),
                aliases: aliases(model, id),
                parent: parent(model, id),
            });
        }
    }
    if entries.is_empty() && !listed.is_empty() {
        return Err(format!("unknown shape: no `{}` in `{list}`", id_keys[0]));
    }
    Ok(entries)
}

fn text<'v>(model: &'v Value, key: &str) -> Option<&'v str> {
    model.get(key)?.as_str().filter(|text| !text.is_empty())
}

/// Other names. llama.cpp repeats the id among them.
fn aliases(model: &Value, id: &str) -> Vec<Arc<str>> {
    let mut seen = HashSet::from([id, ""]);
    let listed = model.get("aliases").and_then(Value::as_array);
    let names = listed.into_iter().flatten().filter_map(Value::as_str);
    names.filter(|name| seen.insert(name)).map(Arc::from).collect()
}

fn parent(model: &Value, id: &str) -> Option<Arc<str>> {
    text(model, "parent")
        .filter(|parent| *parent != id)
        .map(Arc::from)
}
