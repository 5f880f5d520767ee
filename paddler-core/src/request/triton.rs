//! What does a path mean to Triton Inference Server, in KServe's protocol and beyond it?
//!
//! The model stands in the path, and in the body anything may: a key `model` there is a parameter or a tensor.

use std::ops::Range;

use super::Task;
use super::path::decode_part;
use super::route::Entry;

pub(super) const TABLE: &[Entry] = &[
    Entry::generate("/v2/models/{}/generate", Task::Completion),
    Entry::generate("/v2/models/{}/generate_stream", Task::Completion),
    Entry::generate("/v2/models/{}/versions/{}/generate", Task::Completion),
    Entry::generate("/v2/models/{}/versions/{}/generate_stream", Task::Completion),
    // Tensors, of whatever the model is for, and perhaps as bytes behind the JSON. They may belong to a sequence, of which the
    // model keeps the state.
    Entry::generate("/v2/models/{}/infer", Task::Other)
        .unknown()
        .once(),
    Entry::generate("/v2/models/{}/versions/{}/infer", Task::Other)
        .unknown()
        .once(),
    Entry::admin("/v2/models/stats"),
    Entry::admin("/v2/models/{}/stats"),
    Entry::admin("/v2/models/{}/versions/{}/stats"),
    Entry::admin("/v2/models/{}/trace/setting"),
    Entry::admin("/v2/models/{}/versions/{}/trace/setting"),
    Entry::admin("/v2/trace/setting"),
    Entry::admin("/v2/logging"),
    Entry::admin("/v2/repository/*"),
    // Has files of its machine's memory mapped.
    Entry::admin("/v2/systemsharedmemory/*"),
    Entry::admin("/v2/cudasharedmemory/*"),
];

const MODELS: &str = "/v2/models/";

/// Where the name of the model stands in a path that names one, in its normal form.
fn span(path: &str) -> Option<Range<usize>> {
    let name = path.strip_prefix(MODELS)?.split('/').next()?;
    // That of all models.
    let is_name = !name.is_empty() && path != "/v2/models/stats";
    is_name.then(|| MODELS.len()..MODELS.len() + name.len())
}

/// The model that a path in its normal form names.
pub(crate) fn model_in(path: &str) -> Option<String> {
    span(path).map(|span| decode_part(&path[span]))
}

/// The path with this model in the place of the one that it names.
#[cfg(feature = "proxy")]
pub(crate) fn with_model<'p>(path: &'p str, model: &str) -> std::borrow::Cow<'p, str> {
    match span(path) {
        Some(span) if decode_part(&path[span.clone()]) != model => {
            let (before, behind) = (&path[..span.start], &path[span.end..]);
            let model = super::path::encode_part(model);
            format!("{before}{model}{behind}").into()
        }
        _ => path.into(),
    }
}

/// Whether what is asked for at this path comes in pieces.
pub(super) fn streams(path: &str) -> bool {
    path.ends_with("/generate_stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_the_one_in_the_path() {
        for (path, model) in [
            ("/v2/models/llama/generate", Some("llama")),
            ("/v2/models/llama/versions/1/infer", Some("llama")),
            ("/v2/models/a%3Ab", Some("a:b")),
            ("/v2/models/stats/infer", Some("stats")),
            ("/v2/models/stats", None),
            ("/v2/models", None),
            ("/v2/modelsx/llama/generate", None),
            ("/v1/models/llama", None),
        ] {
            assert_eq!(model_in(path).as_deref(), model, "{path}");
        }
    }

    #[cfg(feature = "proxy")]
    #[test]
    fn another_model_takes_its_place() {
        for (path, model, expected) in [
            ("/v2/models/a/generate", "b", "/v2/models/b/generate"),
            (
                "/v2/models/a/versions/1/infer",
                "b",
                "/v2/models/b/versions/1/infer",
            ),
            ("/v2/models/a", "b c/d?", "/v2/models/b%20c%2Fd%3F"),
            ("/v2/models/a%3Ab/infer", "a:b", "/v2/models/a%3Ab/infer"),
            ("/v2/models/stats", "b", "/v2/models/stats"),
        ] {
            assert_eq!(with_model(path, model), expected, "{path}");
        }
    }
}
