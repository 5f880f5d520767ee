//! How is the API described to those who program against it?
//!
//! By OpenAPI 3.1, made of the table of paths and the shapes in `schemas.json`.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::paths::ENDPOINTS;
use super::table::{Content, Endpoint, Operation, Query, Verb, Who};

/// Of each body, by name.
static SCHEMAS: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("schemas.json")).unwrap_or_default());

/// The document.
pub(super) fn document() -> Value {
    let paths: Map<_, _> = ENDPOINTS
        .iter()
        .map(|endpoint| (endpoint.path.to_owned(), path(endpoint)))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Paddler's management API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "On the management listener. With management_key_file each request needs a key of it, as a bearer \
                            token; without, programs of this machine may do all, and others may read what names no file and no \
                            request.",
        },
        "security": [{"key": []}, {}],
        "paths": paths,
        "components": {
            "schemas": *SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    })
}

fn path(endpoint: &Endpoint) -> Value {
    let of_path = endpoint
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameters: Vec<_> = of_path
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    let mut all = Map::new();
    if !parameters.is_empty() {
        all.insert("parameters".to_owned(), parameters.into());
    }
    for one in endpoint.operations {
        let verb = match one.verb {
            Verb::Get => "get",
            Verb::Post => "post",
            Verb::Put => "put",
            Verb::Delete => "delete",
        };
        all.insert(verb.to_owned(), operation(one));
    }
    all.into()
}

fn operation(one: &Operation) -> Value {
    let mut told = json!({
        "operationId": format!("{:?}", one.does),
        "summary": one.summary,
        "responses": responses(one),
    });
    if !one.query.is_empty() {
        told["parameters"] = one.query.iter().map(parameter).collect();
    }
    if let Some(asked) = &one.asked {
        told["requestBody"] = json!({"required": true, "content": content(asked)});
    }
    let who = match one.who {
        Who::Reader => None,
        Who::Local => Some("Not told to other machines without a key."),
        Who::Agent => Some(
            "With keys, for who has one of agents.key_file or of the API. Without, for programs of this machine where the listener \
             is on loopback, or whoever reaches it where agents are open.",
        ),
    };
    if let Some(who) = who {
        told["description"] = who.into();
    }
    told
}

fn parameter(query: &Query) -> Value {
    let schema: Value = serde_json::from_str(query.schema).unwrap_or_default();
    json!({"name": query.name, "in": "query", "required": false, "description": query.description, "schema": schema})
}

fn content(content: &Content) -> Value {
    let schema = match content.schema {
        Some(name) => json!({"$ref": format!("#/components/schemas/{name}")}),
        None => json!({"type": "string"}),
    };
    json!({content.media: {"schema": schema}})
}

/// By status. What can go wrong anywhere is told of each.
fn responses(one: &Operation) -> Value {
    let mut all = Map::new();
    for answers in one.answers {
        let of_status = all
            .entry(answers.status.to_string())
            .or_insert_with(|| json!({"description": answers.description, "content": {}}));
        let Value::Object(media) = content(&answers.content) else {
            continue;
        };
        if let Some(all) = of_status["content"].as_object_mut() {
            all.extend(media);
        }
    }
    for (status, description) in [
        ("401", "A key is needed, or the one that was sent is not known."),
        ("403", "Without keys this is not for who asks."),
    ] {
        let error = json!({"$ref": "#/components/schemas/Error"});
        let told = json!({"description": description, "content": {"application/json": {"schema": error}}});
        all.entry(status).or_insert(told);
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use paddler_core::manage::{STATES, UpstreamSort};
    use serde_json::json;

    use super::*;

    /// Every `$ref` below a value.
    fn refs(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::Object(pairs) => pairs.iter().for_each(|(key, value)| match value {
                Value::String(name) if key == "$ref" => into.push(name.clone()),
                value => refs(value, into),
            }),
            Value::Array(values) => values.iter().for_each(|value| refs(value, into)),
            _ => {}
        }
    }

    #[test]
    fn the_words_of_the_list_of_upstreams_are_those_that_are_read() {
        let document = document();
        let words = |pointer: &str| document.pointer(pointer).unwrap()["enum"].clone();
        let query = &document["paths"]["/api/v1/upstreams"]["get"]["parameters"];
        let place = |name: &str| {
            let all = query.as_array().unwrap();
            all.iter().position(|one| one["name"] == name).unwrap()
        };
        let of_query = |name| query[place(name)]["schema"]["enum"].clone();
        assert_eq!(
            words("/components/schemas/Upstream/properties/state"),
            json!(STATES)
        );
        assert_eq!(of_query("state"), json!(STATES));
        let sorts: Vec<_> = UpstreamSort::ALL.iter().map(|(word, _)| word).collect();
        assert_eq!(of_query("sort"), json!(sorts));
    }

    #[test]
    fn every_shape_that_is_named_is_there_and_none_is_there_in_vain() {
        let (document, mut named) = (document(), Vec::new());
        refs(&document, &mut named);
        for name in &named {
            let pointer = name.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{name}");
        }
        for name in SCHEMAS.as_object().unwrap().keys() {
            let used = named.contains(&format!("#/components/schemas/{name}")) || name == "Event";
            assert!(used, "{name}");
        }
        for query in ENDPOINTS
            .iter()
            .flat_map(|all| all.operations)
            .flat_map(|one| one.query)
        {
            assert!(parameter(query)["schema"].is_object(), "{query:?}");
        }
    }
}
