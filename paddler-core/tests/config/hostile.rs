//! Does any text do harm?

use paddler_core::config::{Config, ConfigFaults, Mode, Registry, Value};
use proptest::prelude::*;

use crate::check::check;

fn faults(text: &str) -> ConfigFaults {
    Config::read(text, "", Mode::Gateway, &Registry::new()).unwrap_err()
}

#[test]
fn ten_thousand_levels_are_a_fault_and_no_overflow() {
    let block: String = (0..10_000).map(|level| format!("{:level$}a:\n", "")).collect();
    let block = &block[..Value::MAX_TEXT.min(block.len())];
    for text in [
        format!("tree: {}", "[".repeat(10_000)),
        format!("tree: {}{}", "[".repeat(10_000), "]".repeat(10_000)),
        "{tree: ".repeat(10_000),
        "- ".repeat(10_000),
        "? ".repeat(10_000),
        "- - a:\n    ".repeat(10_000),
        block.to_string(),
    ] {
        let faults = faults(&text);
        let problem = &faults.faults.last().unwrap().problem;
        let start: String = text.chars().take(20).collect();
        assert!(
            problem.contains("64 deep") || start.starts_with("- - a"),
            "{start}: {problem}"
        );
        check(&text);
    }
}

#[test]
fn sixty_four_levels_are_read() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(Value::from_yaml(&nested(64), "").is_ok());
    assert!(Value::from_yaml(&nested(65), "").is_err());
    let json = |depth: usize| (0..depth).fold(serde_json::json!([]), |inner, _| serde_json::json!([inner]));
    assert!(Value::from_json(&json(63)).is_ok());
    assert!(Value::from_json(&json(64)).is_err());
}

#[test]
fn a_long_text_is_refused() {
    let text = "#".repeat(Value::MAX_TEXT + 1);
    assert_eq!(faults(&text).to_string(), "the text is longer than 4 MiB");
    assert!(Value::from_yaml(&text[1..], "").is_ok());
}

#[test]
fn faults_beyond_a_thousand_are_counted() {
    let text = "x: 1\n".repeat(3000);
    let faults = faults(&text);
    assert_eq!(faults.faults.len(), ConfigFaults::MOST);
    // Each key but the first is there twice, and the first is not known.
    assert_eq!(faults.more, 2000);
    assert!(faults.to_string().ends_with("\nand 2000 more"));
}

#[test]
fn long_words_are_cut() {
    let text = format!("tree: {{pick: {}}}\n", "x".repeat(100_000));
    assert!(faults(&text).to_string().len() < 300);
    let text = format!("tree: {{{}: 1}}\n", "x".repeat(1000));
    assert!(faults(&text).to_string().len() < 500);
}

/// Words of the language, put together without sense.
fn soup() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "tree",
        "signals",
        "require",
        "prefer",
        "branch",
        "then",
        "else",
        "when",
        "gate",
        "any",
        "all",
        "not",
        "mean",
        "cost",
        "below",
        "first_of",
        "patience",
        "split",
        "weight",
        "by_model",
        "reject",
        "class",
        "reason",
        "pick",
        "random",
        "least",
        "queue",
        "slot",
        "fresh",
        "max_age",
        "10s",
        "1",
        "0.5",
        ".nan",
        "-3",
        "upstreams",
        "url",
        "http://a:1",
        "id",
        "models",
        "limits",
        "body",
        "64MiB",
        "poll",
        "seed",
        "label",
        "within_best",
        "times",
        "plus",
        "weighted",
        "&a",
        "*a",
        "!!str",
        "\"",
        "'",
        "|",
        ">",
        "#",
    ]);
    let sign = prop::sample::select(vec![
        ": ", ", ", "\n", "\n  ", "\n    ", "- ", "[", "]", "{", "}", " ", ":", "---\n", "? ",
    ]);
    prop::collection::vec((word, sign), 0..40)
        .prop_map(|parts| parts.into_iter().flat_map(|(word, sign)| [word, sign]).collect())
}

/// Values of the language, put together without sense, but as sound YAML.
fn nested() -> impl Strategy<Value = serde_json::Value> {
    let key = prop::sample::select(vec![
        "tree",
        "signals",
        "require",
        "prefer",
        "branch",
        "then",
        "else",
        "when",
        "gate",
        "any",
        "all",
        "not",
        "mean",
        "cost",
        "below",
        "at_most",
        "first_of",
        "patience",
        "split",
        "weight",
        "by_model",
        "reject",
        "class",
        "reason",
        "pick",
        "least",
        "fresh",
        "max_age",
        "upstreams",
        "url",
        "models",
        "label",
        "within_best",
        "times",
        "weighted",
        "queue_depth",
        "kv_cache",
        "seed",
        "task",
        "tokens",
        "at_least",
    ]);
    let leaf = prop::sample::select(vec![
        "random", "slot", "queue", "critical", "shed", "10s", "gateway", "any", "",
    ]);
    let leaf = prop_oneof![
        leaf.prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
    ];
    leaf.prop_recursive(8, 128, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::from),
            prop::collection::hash_map(key.clone(), inner, 0..5).prop_map(|pairs| {
                pairs
                    .into_iter()
                    .map(|(key, value)| (key.to_string(), value))
                    .collect()
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_text(text in "\\PC{0,200}") {
        check(&text);
    }

    #[test]
    fn any_characters(text in prop::collection::vec(any::<char>(), 0..200)) {
        check(&text.into_iter().collect::<String>());
    }

    #[test]
    fn words_without_sense(text in soup()) {
        check(&text);
    }

    #[test]
    fn sound_yaml_without_sense(json in nested()) {
        let text = serde_json::json!({"tree": json}).to_string();
        check(&text);
        check(&json.to_string());
    }

    #[test]
    fn a_built_in_tree_with_one_byte_changed(
        which in 0..3_usize, at in any::<prop::sample::Index>(), to in 0x20_u8..0x7f,
    ) {
        use paddler_core::schedule::trees;
        let mut bytes = [trees::SEED, trees::BALANCER, trees::GATEWAY][which].as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        check(&String::from_utf8(bytes).unwrap());
    }
}
