//! What does a request's body ask for?

use std::fmt;

use serde_json::Value;

use crate::text;

/// Most tasks that one request may ask for.
const MAX_TASKS: usize = 4_096;

/// Which kind of body it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// OpenAI chat completions.
    Chat,
    /// OpenAI completions.
    Completions,
    /// llama.cpp's own completions.
    Native,
    /// Anthropic messages.
    Messages,
    /// OpenAI responses.
    Responses,
    /// OpenAI embeddings.
    Embeddings,
    /// llama.cpp's own embeddings.
    NativeEmbeddings,
    /// Documents put into an order.
    Rerank,
}

impl Kind {
    /// Whether tokens are generated; else prompts are only read.
    pub(crate) fn generates(self) -> bool {
        !matches!(self, Self::Embeddings | Self::NativeEmbeddings | Self::Rerank)
    }
}

/// One prompt, and how many tokens it counts as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    pub(crate) tokens: usize,
}

impl Prompt {
    pub(crate) fn of(text: String) -> Self {
        Self {
            tokens: text::token_count(&text),
            text,
        }
    }
}

/// A request for the model's work.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) model: Option<String>,
    pub(crate) prompts: Vec<Prompt>,
    /// Answers for each prompt.
    pub(crate) n: usize,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    /// Whether every event of a stream tells the usage so far.
    pub(crate) continuous_usage: bool,
}

/// Why a body cannot be answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AskError {
    /// It is not JSON.
    Json(String),
    /// It lacks this field.
    Missing(&'static str),
    /// This field is not what the text says it must be.
    Wrong(&'static str, &'static str),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(text) => write!(f, "the body is not valid JSON: {text}"),
            Self::Missing(field) => write!(f, "'{field}' is required"),
            Self::Wrong(field, wanted) => write!(f, "'{field}' must be {wanted}"),
        }
    }
}

impl Ask {
    /// Reads a body.
    pub(crate) fn read(kind: Kind, body: &[u8]) -> Result<Self, AskError> {
        let value: Value = serde_json::from_slice(body).map_err(|error| AskError::Json(error.to_string()))?;
        let prompts = prompts(kind, &value)?;
        let n = whole(&value, "n")?.unwrap_or(1);
        if n == 0 || n.saturating_mul(prompts.len()) > MAX_TASKS {
            return Err(AskError::Wrong(
                "n",
                "at least 1 and, times the prompts, at most 4096",
            ));
        }
        let options = &value["stream_options"];
        Ok(Self {
            model: value["model"]
                .as_str()
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
            prompts,
            n: if kind.generates() { n } else { 1 },
            max_tokens: max_tokens(&value)?,
            stream: kind.generates() && flag(&value, "stream")?,
            include_usage: options["include_usage"].as_bool().unwrap_or(false),
            continuous_usage: options["continuous_usage_stats"].as_bool().unwrap_or(false),
        })
    }
}

fn flag(value: &Value, field: &'static str) -> Result<bool, AskError> {
    match &value[field] {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        _ => Err(AskError::Wrong(field, "true or false")),
    }
}

fn whole(value: &Value, field: &'static str) -> Result<Option<usize>, AskError> {
    match &value[field] {
        Value::Null => Ok(None),
        number => match number.as_u64().and_then(|number| usize::try_from(number).ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(AskError::Wrong(field, "a whole number")),
        },
    }
}

/// The limit by whichever of its names it has; -1 is llama.cpp's word for no limit.
fn max_tokens(value: &Value) -> Result<Option<usize>, AskError> {
    for field in [
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "n_predict",
    ] {
        if value[field].as_i64() == Some(-1) {
            return Ok(None);
        }
        if let Some(number) = whole(value, field)? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

fn prompts(kind: Kind, value: &Value) -> Result<Vec<Prompt>, AskError> {
    match kind {
        Kind::Chat | Kind::Messages => conversation(value),
        Kind::Completions | Kind::Native => texts("prompt", &value["prompt"]),
        Kind::Responses => responses_input(value),
        Kind::Embeddings => texts("input", &value["input"]),
        Kind::NativeEmbeddings => {
            let field = if value["content"].is_null() {
                "input"
            } else {
                "content"
            };
            texts(field, &value[field])
        }
        Kind::Rerank => documents(value),
    }
}

fn conversation(value: &Value) -> Result<Vec<Prompt>, AskError> {
    let messages = match &value["messages"] {
        Value::Null => return Err(AskError::Missing("messages")),
        Value::Array(messages) => messages,
        _ => return Err(AskError::Wrong("messages", "an array")),
    };
    let mut text = String::new();
    add_text(&value["system"], &mut text);
    for message in messages {
        add_text(&message["content"], &mut text);
    }
    Ok(vec![Prompt::of(text)])
}

fn responses_input(value: &Value) -> Result<Vec<Prompt>, AskError> {
    let mut text = String::new();
    add_text(&value["instructions"], &mut text);
    match &value["input"] {
        Value::Null => return Err(AskError::Missing("input")),
        Value::String(input) => text.push_str(input),
        Value::Array(items) => items
            .iter()
            .for_each(|item| add_text(&item["content"], &mut text)),
        _ => return Err(AskError::Wrong("input", "a string or an array")),
    }
    Ok(vec![Prompt::of(text)])
}

/// Adds the text of a message's content: a string, or an array of parts.
fn add_text(content: &Value, text: &mut String) {
    match content {
        Value::String(content) => text.push_str(content),
        Value::Array(parts) => {
            for part in parts {
                text.push_str(part.as_str().or(part["text"].as_str()).unwrap_or_default());
            }
        }
        _ => {}
    }
}

/// One or several prompts, each as text or as token ids.
fn texts(field: &'static str, value: &Value) -> Result<Vec<Prompt>, AskError> {
    const WANTED: &str = "a string, an array of strings or an array of token ids";
    let tokens = |ids: &[Value]| {
        let text = ids.iter().map(|id| format!("{id},")).collect();
        Prompt {
            text,
            tokens: ids.len().max(1),
        }
    };
    let all_numbers = |values: &[Value]| values.iter().all(Value::is_number);
    match value {
        Value::Null => Err(AskError::Missing(field)),
        Value::String(text) => Ok(vec![Prompt::of(text.clone())]),
        Value::Array(values) if values.is_empty() => Err(AskError::Wrong(field, WANTED)),
        Value::Array(values) if all_numbers(values) => Ok(vec![tokens(values)]),
        Value::Array(values) => values
            .iter()
            .map(|value| match value {
                Value::String(text) => Ok(Prompt::of(text.clone())),
                Value::Array(ids) if all_numbers(ids) => Ok(tokens(ids)),
                _ => Err(AskError::Wrong(field, WANTED)),
            })
            .collect(),
        _ => Err(AskError::Wrong(field, WANTED)),
    }
}

/// A query with each of its documents.
fn documents(value: &Value) -> Result<Vec<Prompt>, AskError> {
    let query = value["query"].as_str().ok_or(AskError::Missing("query"))?;
    let documents = value["documents"]
        .as_array()
        .ok_or(AskError::Missing("documents"))?;
    if documents.is_empty() {
        return Err(AskError::Wrong("documents", "a non-empty array"));
    }
    let text = |document: &Value| {
        let document = document
            .as_str()
            .or(document["text"].as_str())
            .unwrap_or_default();
        Prompt::of(format!("{query}\n{document}"))
    };
    Ok(documents.iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, body: &str) -> Result<Ask, AskError> {
        Ask::read(kind, body.as_bytes())
    }

    #[test]
    fn prompts_in_all_their_forms() {
        for (body, count) in [
            (r#"{"prompt":"a"}"#, 1),
            (r#"{"prompt":["a","b"]}"#, 2),
            (r#"{"prompt":[1,2,3]}"#, 1),
            (r#"{"prompt":[[1,2],[3],"x"]}"#, 3),
        ] {
            assert_eq!(
                read(Kind::Completions, body).unwrap().prompts.len(),
                count,
                "{body}"
            );
        }
        let parts =
            r#"{"system":"s","messages":[{"content":[{"type":"text","text":"a"},{"type":"image"}]}]}"#;
        assert_eq!(read(Kind::Messages, parts).unwrap().prompts[0].text, "sa");
    }

    #[test]
    fn limits_under_every_name() {
        for field in [
            "max_tokens",
            "max_completion_tokens",
            "max_output_tokens",
            "n_predict",
        ] {
            let body = format!(r#"{{"prompt":"a","{field}":7}}"#);
            assert_eq!(read(Kind::Native, &body).unwrap().max_tokens, Some(7));
        }
        assert_eq!(
            read(Kind::Native, r#"{"prompt":"a","n_predict":-1}"#)
                .unwrap()
                .max_tokens,
            None
        );
    }

    #[test]
    fn wrong_bodies_are_told_apart() {
        assert!(matches!(read(Kind::Chat, "{"), Err(AskError::Json(_))));
        assert_eq!(read(Kind::Chat, "{}").unwrap_err(), AskError::Missing("messages"));
        assert!(matches!(
            read(Kind::Chat, r#"{"messages":1}"#),
            Err(AskError::Wrong("messages", _))
        ));
        assert!(matches!(
            read(Kind::Completions, r#"{"prompt":[{}]}"#),
            Err(AskError::Wrong("prompt", _))
        ));
        assert!(matches!(
            read(Kind::Completions, r#"{"prompt":"a","n":99999}"#),
            Err(AskError::Wrong("n", _))
        ));
        assert!(matches!(
            read(Kind::Chat, "[]"),
            Err(AskError::Missing("messages"))
        ));
    }
}
