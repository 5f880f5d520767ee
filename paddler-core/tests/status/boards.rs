//! Does every figure that the board and the alerts of `examples/observe` ask for exist?

use std::collections::BTreeSet;

use paddler_core::config::{Kind, Value as Yaml};
use paddler_core::observe::names::{ALL, Family, Kind as Sort};
use serde_json::Value;

const BOARD: &str = include_str!("../../../examples/observe/grafana.json");
const ALERTS: &str = include_str!("../../../examples/observe/alerts.yaml");

/// What may stand in an expression besides figures and labels.
const WORDS: [&str; 14] = [
    "absent",
    "by",
    "changes",
    "count",
    "histogram_quantile",
    "increase",
    "label_values",
    "max",
    "on",
    "rate",
    "sum",
    "and",
    "or",
    "unless",
];

/// The values of labels that are of a fixed list.
const VALUES: [(&str, &[&str]); 4] = [
    ("priority", &["high", "standard", "sheddable"]),
    ("result", &["answered", "refused", "cut_short", "left"]),
    ("event", &["entered", "emptied", "failed", "picked", "ended"]),
    ("counted", &["tokens", "pieces"]),
];

/// A piece of an expression.
#[derive(Debug, PartialEq)]
enum Token<'a> {
    Name(&'a str),
    Text(&'a str),
    Sign(char),
}

fn tokens(expr: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = expr.trim_start();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == ':';
    while let Some(first) = rest.chars().next() {
        let end;
        if first == '"' {
            end = 2 + rest[1..]
                .find('"')
                .unwrap_or_else(|| panic!("a text without end: {expr}"));
            tokens.push(Token::Text(&rest[1..end - 1]));
        } else if is_name(first) || first == '.' {
            end = rest.find(|c| !is_name(c) && c != '.').unwrap_or(rest.len());
            // A number, a duration or a variable of the board is none.
            if first.is_ascii_alphabetic() || first == '_' {
                tokens.push(Token::Name(&rest[..end]));
            }
        } else {
            end = first.len_utf8();
            tokens.push(Token::Sign(first));
        }
        rest = rest[end..].trim_start();
    }
    tokens
}

/// The family of a series, and whether it is its buckets.
fn family(name: &str) -> Option<(&'static Family, bool)> {
    ALL.iter().find_map(|family| {
        let rest = name.strip_prefix(family.name)?;
        match (family.kind, rest) {
            (Sort::Histogram, "_bucket") => Some((family, true)),
            (Sort::Histogram, "_sum" | "_count") => Some((family, false)),
            (Sort::Counter | Sort::Gauge, "") => Some((family, false)),
            _ => None,
        }
    })
}

/// The labels and the families that an expression asks for.
///
/// # Errors
/// What in it does not exist.
fn check(expr: &str) -> Result<(BTreeSet<&str>, Vec<&'static Family>), String> {
    let tokens = tokens(expr);
    let (mut families, mut grouped, mut shown) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let (mut braces, mut group) = (false, false);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Sign('{') => braces = true,
            Token::Sign('}') => braces = false,
            Token::Sign(')') => group = false,
            Token::Name("by") => group = true,
            Token::Name(label) if braces => {
                let of = families.last().ok_or("labels of nothing")?;
                has(*of, label)?;
                let values = tokens[at + 1..].iter().find_map(|token| match token {
                    Token::Text(text) => Some(*text),
                    _ => None,
                });
                known(label, values.ok_or("a label without a value")?)?;
            }
            Token::Name(label) if group => {
                grouped.insert(*label);
            }
            Token::Name(name) => match family(name) {
                Some(found) => families.push(found),
                None if WORDS.contains(name) => {}
                // The second argument of `label_values`.
                None if expr.starts_with("label_values(") && !families.is_empty() => {
                    grouped.insert(*name);
                }
                None => return Err(format!("{name} does not exist")),
            },
            _ => {}
        }
    }
    for label in &grouped {
        families.iter().try_for_each(|of| has(*of, label))?;
        shown.insert(*label);
    }
    if grouped.is_empty() {
        shown.extend(
            families
                .iter()
                .flat_map(|(family, _)| family.labels.iter().copied()),
        );
    }
    if families.is_empty() {
        return Err(format!("{expr} asks for nothing"));
    }
    Ok((shown, families.into_iter().map(|(family, _)| family).collect()))
}

fn has((family, buckets): (&Family, bool), label: &str) -> Result<(), String> {
    let there = family.labels.contains(&label) || (buckets && label == "le");
    there
        .then_some(())
        .ok_or_else(|| format!("{} has no label {label}", family.name))
}

fn known(label: &str, value: &str) -> Result<(), String> {
    let Some((_, values)) = VALUES.iter().find(|(name, _)| *name == label) else {
        return Ok(());
    };
    let unknown = value.split('|').find(|value| !values.contains(value));
    unknown.map_or(Ok(()), |value| Err(format!("{label} is never {value}")))
}

/// The labels that stand in a legend or in an annotation, after this.
fn shown<'a>(text: &'a str, before: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for part in text.split("{{").skip(1) {
        let (inside, _) = part.split_once("}}").unwrap();
        found.push(
            inside
                .trim()
                .strip_prefix(before)
                .unwrap_or_else(|| panic!("{text}")),
        );
    }
    found
}

#[test]
fn the_board_asks_for_what_is_there_and_for_nearly_all_of_it() {
    let board: Value = serde_json::from_str(BOARD).unwrap();
    let mut asked = BTreeSet::new();
    let mut places = BTreeSet::new();
    for panel in board["panels"].as_array().unwrap() {
        let (title, place) = (&panel["title"], &panel["gridPos"]);
        assert!(
            places.insert((place["x"].to_string(), place["y"].to_string())),
            "{title}: {place}"
        );
        assert!(
            place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24,
            "{title}"
        );
        let targets = panel["targets"].as_array();
        assert_eq!(targets.is_none(), panel["type"] == "row", "{title}");
        for target in targets.into_iter().flatten() {
            let expr = target["expr"].as_str().unwrap();
            let (labels, families) = check(expr).unwrap_or_else(|fault| panic!("{title}: {expr}: {fault}"));
            for label in shown(target["legendFormat"].as_str().unwrap(), "") {
                assert!(labels.contains(label), "{title}: nothing tells {label}");
            }
            asked.extend(families.iter().map(|family| family.name));
        }
    }
    for variable in board["templating"]["list"].as_array().unwrap() {
        if variable["type"] == "query" {
            let query = variable["definition"].as_str().unwrap();
            check(query).unwrap_or_else(|fault| panic!("{query}: {fault}"));
        }
    }
    for annotation in board["annotations"]["list"].as_array().unwrap() {
        let expr = annotation["expr"].as_str().unwrap();
        let (_, families) = check(expr).unwrap_or_else(|fault| panic!("{expr}: {fault}"));
        asked.extend(families.iter().map(|family| family.name));
    }
    let left: Vec<_> = ALL
        .iter()
        .map(|family| family.name)
        .filter(|name| !asked.contains(name))
        .collect();
    // It says when a config was read; the page has it for whoever wants to know.
    assert_eq!(
        left,
        ["paddler_config_age_seconds"],
        "the board shows all but these"
    );
}

fn text<'a>(value: &'a Yaml, key: &str) -> Option<&'a str> {
    match &value.get(key)?.kind {
        Kind::String(text) => Some(text),
        _ => None,
    }
}

fn list<'a>(value: &'a Yaml, key: &str) -> &'a [Yaml] {
    match &value.get(key).unwrap().kind {
        Kind::List(list) => list,
        _ => panic!("{key} is no list"),
    }
}

#[test]
fn each_alert_asks_for_what_is_there_and_says_why_and_what_to_do() {
    let alerts = Yaml::from_yaml(ALERTS, "alerts.yaml").unwrap();
    let mut names = BTreeSet::new();
    for rule in list(&alerts, "groups")
        .iter()
        .flat_map(|group| list(group, "rules"))
    {
        let name = text(rule, "alert").unwrap();
        assert!(names.insert(name) && name.starts_with("Paddler"), "{name}");
        let expr = text(rule, "expr").unwrap();
        let (labels, _) = check(expr).unwrap_or_else(|fault| panic!("{name}: {expr}: {fault}"));
        assert!(
            text(rule, "for").unwrap().ends_with('m'),
            "{name}: no blip wakes anybody"
        );
        let severity = text(rule.get("labels").unwrap(), "severity").unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}");
        let annotations = rule.get("annotations").unwrap();
        for key in ["summary", "description", "runbook"] {
            let said = text(annotations, key).unwrap_or_else(|| panic!("{name} has no {key}"));
            assert!(said.len() > 20, "{name}: {key}");
            for label in shown(said, "$labels.") {
                assert!(labels.contains(label), "{name}: nothing tells {label}");
            }
            for part in said
                .split('`')
                .skip(1)
                .step_by(2)
                .filter(|part| part.contains("paddler_"))
            {
                check(part).unwrap_or_else(|fault| panic!("{name}: {part}: {fault}"));
            }
            for word in said
                .split_whitespace()
                .filter(|word| word.starts_with("paddler_"))
            {
                let word = word.trim_end_matches([':', ';', '.', ',']);
                assert!(ALL.iter().any(|family| family.name == word), "{name}: {word}");
            }
        }
    }
    assert!(names.len() >= 15);
}

#[test]
fn what_does_not_exist_is_found() {
    for (expr, fault) in [
        (
            "sum(paddler_nothing_total)",
            "paddler_nothing_total does not exist",
        ),
        ("rate(paddler_requests[5m])", "paddler_requests does not exist"),
        (
            "rate(paddler_wait_seconds[5m])",
            "paddler_wait_seconds does not exist",
        ),
        (
            "paddler_requests_total_bucket",
            "paddler_requests_total_bucket does not exist",
        ),
        ("summ(paddler_requests_total)", "summ does not exist"),
        (
            "sum by (model) (paddler_requests_total)",
            "paddler_requests_total has no label model",
        ),
        (
            "sum by (le) (paddler_wait_seconds_count)",
            "paddler_wait_seconds has no label le",
        ),
        (
            r#"paddler_requests_total{model="x"}"#,
            "paddler_requests_total has no label model",
        ),
        (
            r#"paddler_waiting_requests{priority=~"high|low"}"#,
            "priority is never low",
        ),
        ("1 + 1", "1 + 1 asks for nothing"),
    ] {
        assert_eq!(check(expr).unwrap_err(), fault, "{expr}");
    }
    let (labels, _) = check("sum by (le, model) (rate(paddler_request_seconds_bucket[5m]))").unwrap();
    assert_eq!(labels, BTreeSet::from(["le", "model"]));
}
