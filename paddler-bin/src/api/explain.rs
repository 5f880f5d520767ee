//! How is it asked where a request would go now, and by which statuses?

use http::StatusCode;
use paddler_core::forward::Body;
use paddler_core::request::RequestFacts;
use serde_json::json;

use super::{Answer, Asked, error, long, told, whole};
use crate::control::Control;
use crate::explain;

/// The largest request that is explained, in bytes, whose prompt nobody keeps.
const LARGEST: usize = 16 << 20;

/// Where a request with this body would go now, and why.
pub(super) async fn explained(control: &Control, asked: &Asked<'_>, body: Body) -> Result<Answer, Answer> {
    let path = asked.query("path").unwrap_or_else(|| explain::PATH.to_owned());
    let method = asked.query("method").unwrap_or_else(|| "POST".to_owned());
    let body = whole(body, LARGEST).await?;
    // Each time another draw.
    let now = control.now();
    let facts = RequestFacts::read(&method, &path, &body, now, now.as_nanos());
    let facts = facts.map_err(|why| error(StatusCode::BAD_REQUEST, &why.to_string()))?;
    let why = control.router.explain(&facts, explain::NAMED);
    why.map(|why| (StatusCode::OK, json!(why)))
        .map_err(|panicked| error(StatusCode::INTERNAL_SERVER_ERROR, &panicked.to_string()))
}

/// The statuses in force. Of thousands of upstreams it takes its time.
pub(super) async fn snapshot(control: &Control) -> Result<Answer, Answer> {
    let state = control.router.published().load_full();
    long(move || json!(state.record())).await.map(told)
}
