//! How is another model asked for than the body names?
//!
//! The bytes of the name are replaced, wherever it stands. All others stay as they came: engines that read a body in another
//! way than we do read the same as before.

use http::StatusCode;

use super::intake::Intake;
use super::refusal::Refusal;

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
    let name = serde_json::Value::from(model).to_string();
    intake.held.splice(&scanned.model_spans, &name.into());
    Ok(true)
}
