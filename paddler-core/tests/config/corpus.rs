//! Are the files of `corpus/config` read, or refused for exactly the faults that they list?
//!
//! A line `#> 3:5: path: problem` of an invalid file is a fault that is to be found. Those that are found and not listed
//! fail the test too.

use std::collections::BTreeMap;
use std::path::Path;

use paddler_core::config::{Config, Mode, Registry, Value};

use crate::check::check;

/// The files of a folder of the corpus, by name.
pub(crate) fn corpus(folder: &str) -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus/config")
        .join(folder);
    let files = folder.read_dir().unwrap().map(|file| {
        let file = file.unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        (file.file_name().into_string().unwrap(), text)
    });
    files.collect()
}

fn read(text: &str) -> Result<Config, String> {
    Config::read(text, "", Mode::Gateway, &Registry::new()).map_err(|faults| faults.to_string())
}

#[test]
fn valid_files_are_read() {
    let files = corpus("valid");
    assert!(files.len() >= 8);
    for (name, text) in files {
        read(&text).unwrap_or_else(|faults| panic!("{name}\n{faults}"));
        check(&text);
    }
}

#[test]
fn what_is_in_force_is_told_in_the_words_that_are_read() {
    for (name, text) in corpus("valid") {
        let mut config = read(&text).unwrap();
        let told = Value::from_json(&config.to_json()).unwrap();
        let read_again = || Config::from_value(&told, &name, Mode::Gateway, &Registry::new()).unwrap();
        // The tree is told elsewhere.
        config.tree = read_again().tree;
        let again = read_again();
        assert_eq!(format!("{config:?}"), format!("{again:?}"), "{name}");
    }
}

#[test]
fn invalid_files_have_the_faults_that_they_list() {
    let files = corpus("invalid");
    assert!(files.len() >= 15);
    for (name, text) in files {
        let listed: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("#> ")).collect();
        let found = read(&text).expect_err(&name);
        assert_eq!(found.lines().collect::<Vec<_>>(), listed, "{name}\n{found}");
        check(&text);
    }
}

#[test]
fn a_file_cut_anywhere_does_no_harm() {
    for (_, text) in corpus("valid") {
        for (cut, _) in text.char_indices() {
            check(&text[..cut]);
        }
    }
    for (_, text) in corpus("invalid") {
        // What is listed is a comment, and cutting it tells nothing. A prime, so that each kind of place is met.
        let end = text.find("#> ").unwrap_or(text.len());
        for (cut, _) in text[..end].char_indices().step_by(7) {
            check(&text[..cut]);
        }
    }
}
