//! How is it told where the last requests went, and why?

use std::sync::Arc;

use http::StatusCode;
use paddler_core::manage::{Decisions, Wanted};
use serde_json::json;

use super::{Answer, Asked, error, long, told};
use crate::control::Control;

/// How many are told at most, and if nothing is said.
const MOST: usize = 1000;
const LIMIT: usize = 100;

/// Those that are wanted, the last first. A thousand of them take their time.
pub(super) async fn list(control: &Control, asked: &Asked<'_>) -> Result<Answer, Answer> {
    let limit = match asked.query("limit") {
        None => LIMIT,
        Some(said) => {
            let limit = said.parse().ok().filter(|limit| (1..=MOST).contains(limit));
            limit.ok_or_else(|| {
                let message = format!("limit={said}: a whole number from 1 to {MOST} should stand there");
                error(StatusCode::BAD_REQUEST, &message)
            })?
        }
    };
    let mut wanted = Wanted::default();
    wanted.limit = Some(limit);
    (wanted.model, wanted.upstream) = (asked.query("model"), asked.query("upstream"));
    let (decisions, now): (Arc<Decisions>, _) = (control.decisions.clone(), control.now());
    let told_of = long(move || {
        let (rules, (seen, recorded)) = (decisions.rules(), decisions.counts());
        json!({
            "seen": seen,
            "recorded": recorded,
            "keep": rules.keep,
            "per_second": rules.per_second,
            "decisions": decisions.list(&wanted, now),
        })
    });
    told_of.await.map(told)
}

/// The one about the request of this id.
pub(super) fn one(control: &Control, id: &str) -> Result<Answer, Answer> {
    let found = control.decisions.find(id, control.now());
    found.map(|decision| told(json!(decision))).ok_or_else(|| {
        let message = format!(
            "no decision about a request {id:?} is kept: it was not recorded, or too many came after it"
        );
        error(StatusCode::NOT_FOUND, &message)
    })
}
