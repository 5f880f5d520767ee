//! How is the tree in force shown, checked and replaced by the management API?

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use paddler_core::config::{ConfigFaults, Registry, tree_from_yaml};
use paddler_core::forward::Body;
use paddler_core::manage::TreeStatus;
use paddler_core::schedule::{PictureFormat, Tree};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::table::TEXT;
use super::{Answer, Asked, Reply, error, told, whole};
use crate::control::Control;

/// The largest tree that is read, in bytes.
const LARGEST: usize = 1 << 20;

const NOTE: &str = "no file was changed: a reload brings the config's tree back, and so does a restart";

/// The tree in force, in the form that is asked for.
pub(super) fn in_force(control: &Control, asked: &Asked<'_>) -> Result<Reply, Answer> {
    let snapshot = control.router.published().load_full();
    let tree = snapshot.tree();
    let text = match asked.query("format").as_deref() {
        None | Some("json") => {
            let mut shown = shown(tree);
            shown["source"] = control.tree_source(tree).into();
            return Ok(told(shown).into());
        }
        Some("text") => tree.to_string(),
        Some("mermaid") => tree.picture(PictureFormat::Mermaid).to_string(),
        Some("dot") => tree.picture(PictureFormat::Dot).to_string(),
        Some(other) => {
            let message = format!("format={other}: json, text, mermaid and dot are there");
            return Err(error(StatusCode::BAD_REQUEST, &message));
        }
    };
    Ok(Reply::Text(TEXT, text))
}

fn shown(tree: &Tree) -> Value {
    json!(TreeStatus::of(tree))
}

/// What the tree of this body is, or all that is wrong with it.
pub(super) async fn validate(body: Body) -> Result<Answer, Answer> {
    let tree = read(&whole(body, LARGEST).await?)?;
    Ok(told(shown(&tree)))
}

/// Puts the tree of this body in force, as a reload does that of the config.
pub(super) async fn replace(control: &Control, body: Body) -> Result<Answer, Answer> {
    let tree = Arc::new(read(&whole(body, LARGEST).await?)?);
    let put = control.put_tree(tree.clone()).await;
    put.map_err(|ended| error(StatusCode::SERVICE_UNAVAILABLE, &ended.to_string()))?;
    tracing::info!("another tree is in force, by the management API");
    let settled = control.until(|snapshot| Arc::ptr_eq(snapshot.tree(), &tree));
    // Another one may have come after it.
    timeout(Duration::from_secs(1), settled).await.ok();
    let mut shown = shown(&tree);
    (shown["source"], shown["note"]) = ("api".into(), NOTE.into());
    Ok(told(shown))
}

/// A tree, as YAML or as JSON, which is YAML too.
fn read(body: &Bytes) -> Result<Tree, Answer> {
    let refused = |faults: Vec<String>| {
        let all = json!({"error": faults.join("; "), "faults": faults});
        (StatusCode::UNPROCESSABLE_ENTITY, all)
    };
    let text = std::str::from_utf8(body)
        .map_err(|_| refused(vec!["it is not text in UTF-8: save it as UTF-8".to_owned()]))?;
    let of = |faults: ConfigFaults| refused(faults.faults.iter().map(ToString::to_string).collect());
    tree_from_yaml(text, "", &Registry::new()).map_err(of)
}
