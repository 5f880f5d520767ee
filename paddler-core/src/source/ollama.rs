//! How does Ollama say how it is?
//!
//! It lists the models that it could load, and tells no load: only what we send there ourselves is known. How many requests
//! it runs at once (`OLLAMA_NUM_PARALLEL`, for each model) it does not tell either, so say it with `max_in_flight`.

use serde::Deserialize;

use super::Endpoint;
use super::answer::{json, refusal};
use crate::status::{Health, Report, Signal};
use crate::upstream::{ModelEntry, Models};

/// The tag that is meant where a name has none.
const USUAL_TAG: &str = ":latest";

#[derive(Deserialize)]
struct Tags {
    models: Vec<Tagged>,
}

#[derive(Deserialize)]
struct Tagged {
    name: String,
}

/// Reads `GET /api/tags` into [`Report::models`] and [`Report::health`]: a server that lists them is ready. A model is also
/// known without its tag where that is `latest`.
///
/// ```
/// use paddler_core::source::ollama::read_tags;
/// use paddler_core::status::Report;
/// use paddler_core::upstream::Models;
///
/// let mut report = Report::new();
/// read_tags(200, br#"{"models":[{"name":"llama3.2:latest"},{"name":"qwen3:0.6b"}]}"#, &mut report);
/// let Some(Models::Listed(models)) = report.models else { panic!() };
/// assert_eq!(&*models[0].id, "llama3.2:latest");
/// assert_eq!(&*models[0].aliases[0], "llama3.2");
/// assert!(models[1].aliases.is_empty());
/// ```
pub fn read_tags(status: u16, body: &[u8], report: &mut Report) {
    let tags = match status {
        200 => json::<Tags>(body),
        _ => Err(refusal(status, body)),
    };
    if status == 200 {
        report.health = Some(Health::Ready);
    } else if status >= 500 {
        report.health = Some(Health::Failing);
    }
    match tags {
        Ok(tags) => {
            let entries = tags.models.into_iter().filter(|model| !model.name.is_empty());
            report.models = Some(Models::Listed(entries.map(entry).collect()));
        }
        Err(found) => report.degrade(Signal::Models, Endpoint::Tags.path(), found),
    }
}

fn entry(tagged: Tagged) -> ModelEntry {
    let mut entry = ModelEntry::new(tagged.name.as_str());
    let bare = tagged
        .name
        .strip_suffix(USUAL_TAG)
        .filter(|bare| !bare.is_empty());
    entry.aliases.extend(bare.map(Into::into));
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_degraded() {
        for (status, body, health) in [
            (200, "[]", Some(Health::Ready)),
            (500, r#"{"error":"no disk"}"#, Some(Health::Failing)),
            (404, "", None),
        ] {
            let mut report = Report::new();
            read_tags(status, body.as_bytes(), &mut report);
            assert_eq!((report.health, report.models), (health, None), "{status}");
            assert_eq!(report.degraded[0].signal, Signal::Models);
        }
    }
}
