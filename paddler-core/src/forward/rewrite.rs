//! How is another model asked for than the body names?
//!
//! The bytes of the name are replaced, wherever it stands. All others stay as they came: engines that read a body in another
//! way than we do read the same as before.

use http::{StatusCode, Uri};

use super::intake::Intake;
use super::refusal::Refusal;
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
        Some(name) if name == asked => format!("model={}", encode_part(model)),
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

/// Makes the body ask for this model, if it names another one. Says whether it had to be changed.
pub(super) fn ask_for(model: Option<&str>, intake: &mut Intake) -> Result<bool, Refusal> {
    let (Some(model), Some(scanned)) = (model, &intake.scanned) else {
        return Ok(false);
    };
    let asked = scanned.model.name();
    if asked.is_some_and(|asked| &**asked == model) || (asked.is_none() && scanned.model_spans.is_empty()) {
        return Ok(false);
    }
    // Where the name stands in a compressed body is not known.
    if scanned.model_spans.is_empty() {
        let message =
            "the body is compressed, and another model is asked for than it names: send it uncompressed";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Refusal::new(status, "content_encoding", message));
    }
    let name = if scanned.is_form {
        in_form(model)?
    } else {
        serde_json::Value::from(model).to_string()
    };
    intake.held.splice(&scanned.model_spans, &name.into());
    Ok(true)
}
