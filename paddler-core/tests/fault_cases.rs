//! Is each fault that other gateways were seen to have kept away here, and by what?
//!
//! `data/fault_cases.jsonl` holds a hundred faults, each told to the project that had it, and what keeps each away: a test,
//! the shape of the code, or nothing yet. This check holds the table to the sources: a test that is named there exists, runs
//! and is not ignored. A new name for a test is a new name in the table.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path};

use serde::Deserialize;

const TABLE: &str = include_str!("data/fault_cases.jsonl");

/// What is built after this. A fault in one of these has to be kept away there.
const SUBJECTS: [&str; 6] = [
    "Envoy and Python hosts",
    "fleet, agents, management API, explain and models",
    "speed",
    "Kubernetes",
    "prefill/decode disaggregation",
    "KV-cache-aware and prefix routing",
];

/// One line of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// Who was told, and under which number.
    issue: String,
    verdict: Verdict,
    /// `file::name` of a test or a type, a subject of [`SUBJECTS`], or nothing where it is out of scope.
    #[serde(rename = "where")]
    place: String,
    /// The rule that keeps it away, or why nothing does.
    why: String,
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Test,
    ByConstruction,
    Later,
    OutOfScope,
}

impl Case {
    fn read(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))
    }

    fn check(&self) -> Result<(), String> {
        let number = self
            .issue
            .split_once('#')
            .and_then(|(project, number)| number.parse::<u32>().ok().filter(|_| project.contains('/')));
        let found = match self.verdict {
            _ if number.is_none() => Err("the issue is not owner/project#number".to_owned()),
            _ if self.why.is_empty() => Err("it does not say why".to_owned()),
            Verdict::Test => find(&self.place, is_test),
            Verdict::ByConstruction => find(&self.place, is_declared),
            Verdict::Later if SUBJECTS.contains(&self.place.as_str()) => Ok(()),
            Verdict::Later => Err("the subject is none of those to come".to_owned()),
            Verdict::OutOfScope if self.place.is_empty() => Ok(()),
            Verdict::OutOfScope => Err("what is out of scope is nowhere".to_owned()),
        };
        found.map_err(|fault| format!("{}: {}: {fault}", self.issue, self.place))
    }
}

/// Looks for `file::name` in the workspace.
fn find(place: &str, holds: fn(&str, &str) -> Result<(), String>) -> Result<(), String> {
    let (file, name) = place.split_once("::").ok_or("it is not file::name")?;
    let path = Path::new(file);
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !inside || path.extension().is_none_or(|end| end != "rs") {
        return Err("the file is no source of this workspace".into());
    }
    is_compiled(path)?;
    holds(&source(path)?, name)
}

fn source(path: &Path) -> Result<String, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(workspace.join(path)).map_err(|error| format!("{}: {error}", path.display()))
}

/// A file in a folder of tests counts only if the folder's `main.rs` takes it in.
fn is_compiled(path: &Path) -> Result<(), String> {
    let Some(folder) = path
        .parent()
        .filter(|folder| folder.parent().is_some_and(|tests| tests.ends_with("tests")))
    else {
        return Ok(());
    };
    let name = path
        .file_stem()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    let main = source(&folder.join("main.rs"))?;
    let taken_in = name == "main" || main.lines().any(|line| line == format!("mod {name};"));
    taken_in
        .then_some(())
        .ok_or_else(|| format!("main.rs beside it has no `mod {name};`"))
}

/// Whether there is a test of this name that runs.
fn is_test(source: &str, name: &str) -> Result<(), String> {
    let lines: Vec<_> = source.lines().map(str::trim).collect();
    let head = format!("fn {name}(");
    let declares = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.starts_with(&head)
    };
    let at = lines
        .iter()
        .position(|line| declares(line))
        .ok_or("there is no such function")?;
    let attributes = || {
        let before = lines[..at].iter().rev();
        before.take_while(|line| line.starts_with("#[") || line.starts_with("//"))
    };
    if attributes().any(|line| line.starts_with("#[ignore")) {
        return Err("it is ignored".into());
    }
    let tests = attributes().any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"));
    tests.then_some(()).ok_or_else(|| "it is no test".into())
}

/// Whether a type of this name is declared there.
fn is_declared(source: &str, name: &str) -> Result<(), String> {
    let declares = |line: &str| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let kind = words.find(|word| ["struct", "enum", "trait", "type"].contains(word));
        kind.is_some() && words.next() == Some(name)
    };
    let code = source
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"));
    let declared = code.into_iter().any(declares);
    declared
        .then_some(())
        .ok_or_else(|| "no such type is declared there".into())
}

#[test]
fn each_of_a_hundred_faults_is_kept_away_by_what_the_table_says() {
    let cases: Vec<_> = TABLE.lines().map(Case::read).collect();
    let faults: Vec<_> = cases
        .iter()
        .filter_map(|case| match case {
            Ok(case) => case.check().err(),
            Err(fault) => Some(fault.clone()),
        })
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let issues: BTreeSet<_> = cases.iter().flatten().map(|case| case.issue.as_str()).collect();
    assert_eq!((issues.len(), cases.len()), (100, 100), "each of them once");
}

#[test]
fn a_table_that_is_not_true_is_found_out() {
    let here = "paddler-core/tests/fault_cases.rs";
    let case = |verdict: &str, place: &str, why: &str| {
        let line = serde_json::json!({ "issue": "a/b#1", "verdict": verdict, "where": place, "why": why });
        Case::read(&line.to_string()).and_then(|case| case.check())
    };
    let own = format!("{here}::a_table_that_is_not_true_is_found_out");
    assert_eq!(case("test", &own, "it is this"), Ok(()));
    assert_eq!(
        case("by_construction", &format!("{here}::Verdict"), "closed"),
        Ok(())
    );
    assert_eq!(case("later", "Kubernetes", "nothing watches yet"), Ok(()));
    assert_eq!(case("out_of_scope", "", "no such thing here"), Ok(()));
    for (verdict, place, why, fault) in [
        ("test", own.as_str(), "", "does not say why"),
        ("test", "a name", "w", "file::name"),
        ("test", "/etc/hosts.rs::a", "w", "no source of this workspace"),
        ("test", "../a.rs::a", "w", "no source of this workspace"),
        ("test", "paddler-core/tests/gone.rs::a", "w", "gone.rs"),
        ("test", "paddler-core/tests/router/gone.rs::a", "w", "mod gone;"),
        (
            "test",
            "paddler-core/tests/fault_cases.rs::gone",
            "w",
            "no such function",
        ),
        ("test", "paddler-core/tests/fault_cases.rs::find", "w", "no test"),
        (
            "by_construction",
            "paddler-core/tests/fault_cases.rs::Gone",
            "w",
            "no such type",
        ),
        ("later", "some day", "w", "none of those to come"),
        ("out_of_scope", "somewhere", "w", "nowhere"),
        ("fixed", "", "w", "unknown variant"),
    ] {
        let error = case(verdict, place, why).expect_err(place);
        assert!(error.contains(fault), "{error}");
    }
    let ignored = "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n";
    assert_eq!(is_test(ignored, "a"), Err("it is ignored".into()));
    assert!(is_test("// fn a() {}\n/// #[test]\nfn a() {}\n", "a").is_err());
    assert!(
        is_test(
            "#[tokio::test(start_paused = true)]\n// Why.\nasync fn a() {}\n",
            "a"
        )
        .is_ok()
    );
    for issue in ["1", "a#1", "a/b#x"] {
        let line = format!(r#"{{"issue":"{issue}","verdict":"out_of_scope","where":"","why":"w"}}"#);
        assert!(Case::read(&line).unwrap().check().is_err(), "{issue}");
    }
    assert!(Case::read(r#"{"issue":"a/b#1"}"#).is_err());
}
