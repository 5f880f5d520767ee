//! Do the tables of this module tell every word of the wire, and none that is no more?

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The code under a folder, without its tests.
fn code(folder: &Path, into: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "tests" {
                code(&path, into);
            }
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            into.extend(lines.flat_map(|line| [line, "\n"]));
        }
    }
}

fn forward() -> String {
    let mut text = String::new();
    code(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/forward"),
        &mut text,
    );
    text
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The words that stand as text behind this, or behind the first comma after it.
fn behind(code: &str, before: &str, second: bool) -> BTreeSet<String> {
    let word = |rest: &str| {
        let rest = if second { rest.split_once(',')?.1 } else { rest };
        let word = rest.trim_start().strip_prefix('"')?.split('"').next()?;
        is_word(word).then(|| word.to_owned())
    };
    code.split(before).skip(1).filter_map(word).collect()
}

/// What the first column of the tables under a heading has in backticks.
fn told(heading: &str) -> BTreeSet<String> {
    let docs = include_str!("mod.rs");
    let (_, section) = docs.split_once(&format!("//! ## {heading}\n")).unwrap();
    let section = section.split("//! #").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("//! | "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_reason_of_a_refusal_is_told() {
    let mut code = forward();
    // The endpoint picker refuses in the router's words.
    let picker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/envoy/src");
    self::code(&picker, &mut code);
    let mut words = behind(&code, "Refusal::new(", true);
    for before in ["bad_request(", "unavailable(", ": &str = "] {
        words.extend(behind(&code, before, false));
    }
    let literals = || code.split('"').filter(|text| is_word(text));
    words.extend(
        literals()
            .filter(|text| text.starts_with("key_") || text.ends_with("_timeout") || *text == "upstream_idle")
            .map(str::to_owned),
    );
    let outcome = include_str!("../schedule/outcome.rs");
    let reasons = outcome.split("pub enum Reason").nth(1).unwrap();
    words.extend(behind(reasons, "=> ", false));
    let told = told("Why a request was refused");
    let missing: Vec<_> = words.difference(&told).collect();
    assert!(missing.is_empty(), "not told: {missing:?}");
    assert!(words.len() > 40, "{words:?}");
    let all: BTreeSet<_> = literals()
        .map(str::to_owned)
        .chain(words.iter().cloned())
        .collect();
    let gone: Vec<_> = told.difference(&all).collect();
    assert!(gone.is_empty(), "told, and nobody says it: {gone:?}");
}

#[test]
fn which_reasons_are_about_the_router_as_a_whole_is_told() {
    let docs = include_str!("mod.rs");
    let (_, told) = docs.split_once("Where routers stand behind routers, ").unwrap();
    let (told, _) = told.split_once(" are about the router as a whole").unwrap();
    let told: Vec<_> = told.split('`').skip(1).step_by(2).collect();
    assert_eq!(told, super::refusal::OF_THE_ROUTER);
    let all = self::told("Why a request was refused");
    assert!(told.iter().all(|word| all.contains(*word)), "{told:?}");
}

#[test]
fn every_header_of_our_own_is_told() {
    let code = forward();
    let ours: BTreeSet<_> = code
        .split('"')
        .filter(|text| text.starts_with("x-paddler-"))
        .map(str::to_owned)
        .collect();
    let told = told("Headers of requests");
    let answers = self::told("Headers of answers");
    let missing: Vec<_> = ours
        .iter()
        .filter(|name| !told.contains(*name) && !answers.contains(*name))
        .collect();
    assert!(missing.is_empty(), "not told: {missing:?}");
    assert!(ours.len() >= 7, "{ours:?}");
    let own = told
        .iter()
        .chain(&answers)
        .filter(|name| name.starts_with("x-paddler-"));
    let gone: Vec<_> = own.filter(|name| !ours.contains(*name)).collect();
    assert!(gone.is_empty(), "told, and nobody reads or says it: {gone:?}");
}

#[test]
fn every_reason_of_a_metric_is_told() {
    let code = forward();
    let told = told("Reasons in metrics");
    let mut words = BTreeSet::new();
    for before in ["retried(", "truncated(", "cut("] {
        words.extend(behind(&code, before, false));
    }
    assert!(words.len() > 7, "{words:?}");
    let missing: Vec<_> = words.difference(&told).collect();
    assert!(missing.is_empty(), "not told: {missing:?}");
    let all: BTreeSet<_> = code.split('"').collect();
    let gone: Vec<_> = told.iter().filter(|word| !all.contains(word.as_str())).collect();
    assert!(gone.is_empty(), "told, and nobody says it: {gone:?}");
}
