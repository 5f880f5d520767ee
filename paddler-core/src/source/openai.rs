//! How does any other OpenAI-compatible endpoint say how it is?
//!
//! Hardly at all: it answers or it does not, and it may list its models. Load is known only as what was sent there.

use super::answer::refusal;
use super::{Endpoint, model_list};
use crate::status::{Health, Report, Signal};
use crate::upstream::Models;

/// Reads the answer to `GET /health`, or to any other request, into [`Report::health`].
///
/// Few of these servers have such a path, so that any answer at all means ready; 503 means failing.
pub fn read_health(status: u16, _body: &[u8], report: &mut Report) {
    report.health = Some(if status == 503 {
        Health::Failing
    } else {
        Health::Ready
    });
}

/// Reads `GET /v1/models` into [`Report::models`]. A server without that path (404, 405, 501) is taken to serve
/// whatever it is asked for; any other refusal is degraded.
///
/// ```
/// use paddler_core::source::openai::read_models;
/// use paddler_core::status::Report;
/// use paddler_core::upstream::{ModelEntry, Models};
///
/// let mut report = Report::new();
/// read_models(200, br#"{"object":"list","data":[{"id":"m"}]}"#, &mut report);
/// assert_eq!(report.models, Some(Models::Listed(vec![ModelEntry::new("m")])));
///
/// let mut report = Report::new();
/// read_models(401, b"", &mut report);
/// assert_eq!(report.models, None);
/// assert!(report.degraded[0].found.starts_with("401: the upstream wants a key"));
/// ```
pub fn read_models(status: u16, body: &[u8], report: &mut Report) {
    let models = match status {
        200 => model_list::read(body).map(Models::Listed),
        404 | 405 | 501 => Ok(Models::Any),
        _ => Err(refusal(status, body)),
    };
    match models {
        Ok(models) => report.models = Some(models),
        Err(found) => report.degrade(Signal::Models, Endpoint::Models.path(), found),
    }
}
