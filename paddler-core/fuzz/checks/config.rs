//! What holds for any text that is read as a config? For the fuzzer, and for the tests that need none.

use paddler_core::config::{Config, ConfigFaults, Mode, Registry, Value, tree_from_yaml};

/// Panics if reading does, or if its faults are not what they say they are.
pub(crate) fn check(text: &str) {
    let registry = Registry::new();
    let read = Config::read(text, "any.yaml", Mode::Gateway, &registry);
    let tree = tree_from_yaml(text, "any.yaml", &registry);
    if let Err(faults) = &read {
        check_faults(text, faults);
    }
    if let Err(faults) = &tree {
        check_faults(text, faults);
    }
    match Value::from_yaml(text, "any.yaml") {
        // What is no value is no config either.
        Err(faults) => {
            check_faults(text, &faults);
            assert!(read.is_err() && tree.is_err());
        }
        Ok(value) => {
            let again = Config::from_value(&value, "any.yaml", Mode::Gateway, &registry);
            assert_eq!(again.err(), read.err(), "a value reads as its text does");
        }
    }
}

fn check_faults(text: &str, faults: &ConfigFaults) {
    assert!(!faults.faults.is_empty());
    assert!(faults.faults.len() <= ConfigFaults::MOST);
    let lines = text.split(['\n', '\r']).count();
    for fault in &faults.faults {
        assert!(!fault.problem.is_empty());
        if let Some(place) = fault.place {
            assert!((1..=lines + 1).contains(&place.line), "{fault:?}");
            assert!(place.column >= 1, "{fault:?}");
        }
    }
    let places: Vec<_> = faults
        .faults
        .iter()
        .map(|fault| (fault.place.is_none(), fault.place))
        .collect();
    assert!(places.is_sorted(), "in the order of the text");
    // One line for each, whatever the text holds.
    let shown = faults.to_string();
    let more = usize::from(faults.more > 0);
    assert_eq!(shown.lines().count(), faults.faults.len() + more, "{shown}");
}
