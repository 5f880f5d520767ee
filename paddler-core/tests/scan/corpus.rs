//! Are the bodies of `corpus/request` read as their names say?

use std::collections::BTreeMap;
use std::path::Path;

use paddler_core::request::{ScanErrorKind, ScanLimits, Scanned, Scanner};

#[path = "../../fuzz/checks/request_body.rs"]
mod request_body;

/// The files of a folder of the corpus, by name.
fn corpus(folder: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus/request")
        .join(folder);
    let files = folder.read_dir().unwrap().map(|file| {
        let file = file.unwrap();
        (
            file.file_name().into_string().unwrap(),
            std::fs::read(file.path()).unwrap(),
        )
    });
    files.collect()
}

fn scan(body: &[u8]) -> Scanned {
    Scanner::scan(body, ScanLimits::default()).unwrap()
}

#[test]
fn valid_bodies_are_read_and_no_part_of_one_is() {
    let files = corpus("valid");
    assert!(files.len() >= 20);
    for (name, body) in files {
        let limits = ScanLimits::default();
        Scanner::scan(&body, limits).unwrap_or_else(|error| panic!("{name}: {error}"));
        let end = body.trim_ascii_end().len();
        for cut in 0..end {
            assert!(
                Scanner::scan(&body[..cut], limits).is_err(),
                "{name} cut at {cut}"
            );
        }
    }
}

#[test]
fn invalid_bodies_are_refused_for_the_reason_in_their_name() {
    let files = corpus("invalid");
    assert!(files.len() >= 30);
    for (name, body) in files {
        let error = Scanner::scan(&body, ScanLimits::default()).expect_err(&name);
        let kind = match error.kind() {
            ScanErrorKind::Empty => "empty",
            ScanErrorKind::NotAnObject => "not-an-object",
            ScanErrorKind::Truncated => "truncated",
            ScanErrorKind::Unexpected { .. } => "unexpected",
            ScanErrorKind::TrailingData => "trailing-data",
            ScanErrorKind::InvalidNumber => "invalid-number",
            ScanErrorKind::InvalidEscape => "invalid-escape",
            ScanErrorKind::ControlCharacter { .. } => "control-character",
            ScanErrorKind::InvalidUtf8 => "invalid-utf8",
            ScanErrorKind::TooDeep { .. } => "too-deep",
            ScanErrorKind::WrongType { .. } => "wrong-type",
            ScanErrorKind::AmbiguousModel => "ambiguous-model",
            ScanErrorKind::RepeatedModel { .. } => "repeated-model",
            _ => "new",
        };
        assert!(name.starts_with(&format!("{kind}--")), "{name}: {error}");
    }
}

#[test]
fn the_fuzz_check_holds_for_the_corpus() {
    for folder in ["valid", "invalid"] {
        for (_, body) in corpus(folder) {
            request_body::check(&body);
            // And for every body that is one byte away.
            for at in 0..body.len().min(200) {
                let mut near = body.clone();
                near[at] ^= 1 << (at % 8);
                request_body::check(&near);
            }
        }
    }
}

#[test]
fn facts_of_the_corpus() {
    let files = corpus("valid");
    let facts = |name: &str| scan(&files[name]);
    let named = |name: &str| facts(name).model.name().map(ToString::to_string);

    let chat = facts("chat-openai.json");
    assert_eq!((chat.stream, chat.user.as_deref()), (true, Some("u-17")));
    // "system", "user" and the two texts.
    assert_eq!(chat.prompt_bytes, 6 + 14 + 4 + 20);
    // The image counts as one, not as text.
    let image = facts("chat-with-image.json");
    assert_eq!((image.media, image.prompt_bytes), (1, 4 + 4 + 13 + 9));
    assert_eq!(facts("anthropic-messages.json").media, 1);
    assert_eq!(
        (
            facts("completion-many-prompts.json").prompts,
            facts("completion-many-prompts.json").n
        ),
        (Some(3), Some(2))
    );
    let ids = facts("completion-token-ids.json");
    assert_eq!((ids.prompts, ids.token_ids), (Some(1), 4));
    let many = facts("token-ids-by-the-hundred.json");
    assert_eq!(
        (many.prompts, many.inputs, many.token_ids),
        (Some(1), Some(1), 150 + 90)
    );
    assert_eq!(facts("long-text-without-escapes.json").prompt_bytes, 800);
    let mixed = facts("completion-mixed-prompts.json");
    assert_eq!(
        (mixed.prompts, mixed.token_ids, mixed.media, mixed.prompt_bytes),
        (Some(4), 5, 1, 4 + 4 + 7)
    );
    assert_eq!(facts("embedding-batch.json").inputs, Some(2));
    assert_eq!(facts("rerank.json").documents, Some(3));
    let stored = facts("responses-stored.json");
    assert_eq!(
        (stored.store, stored.previous_response, stored.background),
        (Some(true), true, false)
    );

    assert_eq!(named("model-key-escaped.json").as_deref(), Some("hidden"));
    assert_eq!(named("model-null.json"), None);
    assert_eq!(facts("model-twice-the-same.json").model_spans.len(), 2);
    assert_eq!(named("model-last-after-text.json").as_deref(), Some("last"));
    assert_eq!(named("model-nested-is-not-asked.json").as_deref(), Some("yes"));
    assert_eq!(named("unicode.json").as_deref(), Some("模型"));
    assert_eq!(named("byte-order-mark.json").as_deref(), Some("m"));
    assert_eq!(
        facts("lone-surrogate.json").prompt_bytes,
        4 + "\u{FFFD}".len() as u64
    );
    assert_eq!(facts("surrogate-pair.json").prompt_bytes, "😀 é \n".len() as u64);
}
