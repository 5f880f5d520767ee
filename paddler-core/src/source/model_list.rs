//! Which models does a model list name?

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::answer::json;
use crate::upstream::ModelEntry;

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
