//! How is another model asked for than the body names?
//!
//! The bytes of the name are replaced, wherever it stands. All others stay as they came: engines that read a body in another
//! way than we do read the same as before.

use std::ops::Range;
use std::sync::Arc;

use http::{StatusCode, Uri};

use super::held::Held;
use super::refusal::Refusal;
use crate::request::Scanned;
use crate::request::path::encode_part;
use crate::request::with_model;

/// Makes a path ask for this model that names another.
pub(super) fn in_path(uri: Uri, model: &str) -> Result<Uri, Refusal> {
    let path = with_model(uri.path(), model);
    if path == uri.path() {
        return Ok(uri);
    }
    let query = uri.query().map_or_else(String::new, |query| format!("?{query}"));
    format!("{path}{query}")
        .parse::<Uri>()
        .map_err(|error| Refusal::bad_request("bad_path", format!("the path cannot be sent on: {error}")))
}

/// Makes a query ask for this model where it names another: that of a WebSocket, which has no body that could.
pub(super) fn in_query(uri: Uri, asked: &str, model: &str) -> Result<Uri, Refusal> {
    let Some(query) = uri.query() else { return Ok(uri) };
    let pairs = query.split('&').map(|pair| match pair.strip_prefix("model=") {
        Some(name) if name == asked || name == encode_part(asked) => format!("model={}", encode_part(model)),
        _ => pair.to_owned(),
    });
    let text = format!("{}?{}", uri.path(), pairs.collect::<Vec<_>>().join("&"));
    text.parse::<Uri>()
        .map_err(|error| Refusal::bad_request("bad_path", format!("the query cannot be sent on: {error}")))
}

/// A name as it stands in a form, where a line could end its field.
fn in_form(model: &str) -> Result<String, Refusal> {
    if model.contains(char::is_control) {
        let message = format!("the model {model:?} cannot be asked for in a form");
        return Err(Refusal::bad_request("malformed_body", message));
    }
    Ok(model.to_owned())
}

/// Where a body names its model, and which, as it is now.
#[derive(Debug, Default)]
pub(super) struct Naming {
    model: Option<Arc<str>>,
    spans: Vec<Range<u64>>,
    is_form: bool,
    /// The path does.
    in_path: bool,
}

impl Naming {
    /// Of a body as it came. The places are taken out.
    pub(super) fn take(scanned: &mut Scanned) -> Self {
        Self {
            model: scanned.model.name().cloned(),
            spans: std::mem::take(&mut scanned.model_spans),
            is_form: scanned.is_form,
            in_path: false,
        }
    }

    /// Of a request whose path names its model.
    pub(super) fn in_path() -> Self {
        Self {
            in_path: true,
            ..Self::default()
        }
    }

    /// Makes the path ask for this model, if that is where it is named.
    pub(super) fn in_uri(&self, uri: Uri, model: &str) -> Result<Uri, Refusal> {
        if self.in_path {
            in_path(uri, model)
        } else {
            Ok(uri)
        }
    }

    /// Whether it can be made to ask for another model.
    pub(super) fn can_change(&self) -> bool {
        self.in_path || !self.spans.is_empty()
    }

    /// Makes the body ask for this model, if it names another one. Says whether it had to be changed.
    pub(super) fn ask_for(&mut self, model: &Arc<str>, held: &mut Held) -> Result<bool, Refusal> {
        if self.model.as_ref() == Some(model) || (self.model.is_none() && self.spans.is_empty()) {
            return Ok(false);
        }
        // Where the name stands in a compressed body is not known.
        if self.spans.is_empty() {
            let message =
                "the body is compressed, and another model is asked for than it names: send it uncompressed";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Refusal::new(status, "content_encoding", message));
        }
        let name = if self.is_form {
            in_form(model)?
        } else {
            serde_json::Value::from(&**model).to_string()
        };
        held.splice(&self.spans, &name.clone().into());
        self.model = Some(model.clone());
        self.moved(name.len() as u64);
        Ok(true)
    }

    /// Each name is as long as this now.
    fn moved(&mut self, length: u64) {
        let (mut before, mut now) = (0, 0);
        for span in &mut self.spans {
            let start = now + (span.start - before);
            before = span.end;
            now = start + length;
            *span = start..now;
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::BodyExt as _;

    use super::*;
    use crate::forward::held::Budget;
    use crate::request::{ScanLimits, Scanner};

    #[tokio::test]
    async fn a_name_is_put_in_as_often_as_is_wanted() {
        let text = r#"{"model":"llama","x":[1],"Model":"llama","y":"llama"}"#;
        let mut scanned = Scanner::scan(text.as_bytes(), ScanLimits::default()).unwrap();
        let budget = Arc::new(Budget::default());
        let mut held = Held::new(budget.clone());
        assert!(held.charge(text.len() as u64, 1 << 20));
        held.fill(vec![
            Bytes::from_static(&text.as_bytes()[..12]),
            Bytes::from_static(&text.as_bytes()[12..]),
        ]);
        let mut naming = Naming::take(&mut scanned);
        assert!(naming.can_change());
        for model in ["llama", "a \"longer\" name", "x", "", "llama"] {
            let changed = naming.ask_for(&model.into(), &mut held).unwrap();
            let name = serde_json::Value::from(model).to_string();
            let expected = text.replacen(r#""llama""#, &name, 2);
            let body = held.body().collect().await.unwrap().to_bytes();
            assert_eq!(body, expected, "{model:?}");
            assert_eq!(
                (held.bytes(), budget.held()),
                (body.len() as u64, body.len() as u64)
            );
            assert!(changed || body == text);
            assert!(
                !naming.ask_for(&model.into(), &mut held).unwrap(),
                "it is there already"
            );
        }
    }
}
