//! Can a host bring names of its own, and are its parameters checked as ours are?

use std::sync::Arc;
use std::time::Duration;

use paddler_core::config::{Kind, Registry, tree_from_yaml};
use paddler_core::schedule::{Condition, Tree, cost_fn, filter_fn};

fn registry() -> Registry {
    let mut registry = Registry::new();
    registry
        .filter("cheap", |params| {
            let below = params.number("below")?.ok_or("`below` is missing")?;
            let age = params.duration("max_age")?.unwrap_or(Duration::ZERO);
            let flag = params.bool("strict")?.unwrap_or_default();
            let tries = params.whole("tries")?.unwrap_or_default();
            let text = params.text("unit")?.unwrap_or("cent");
            if text != "cent" {
                return Err(format!("nobody counts in {text}").into());
            }
            Ok(Arc::new(filter_fn("cheap", move |_, _| {
                below > 0.0 && flag && tries == 0 && age.is_zero()
            })))
        })
        .unwrap()
        .filter("plain", |_| Ok(Arc::new(filter_fn("plain", |_, _| true))))
        .unwrap()
        .cost("distance", |params| {
            let known = params.value().is_some_and(|value| value.kind == Kind::Int(3));
            Ok(Arc::new(cost_fn("distance", move |_, _| known.then_some(1.0))))
        })
        .unwrap()
        .condition("night", |_| Ok(Condition::custom("night", |_| true)))
        .unwrap();
    registry
}

fn read(text: &str) -> Result<Tree, String> {
    tree_from_yaml(text, "", &registry()).map_err(|faults| faults.to_string())
}

#[test]
fn registered_names_stand_where_built_in_ones_do() {
    let text = "
tree:
  - require: plain
  - prefer: {cheap: {below: 3, max_age: 1s, strict: true, tries: 2, unit: cent}}
  - when: night
    then: {pick: {least: {distance: 3}}}
    else: {pick: {least: distance}}
";
    assert_eq!(read(text).unwrap().node_count(), 6);
}

#[test]
fn their_parameters_are_checked() {
    for (params, fault) in [
        ("cheap", "1:18: tree[0].require: `below` is missing"),
        ("{cheap: {}}", "1:19: tree[0].require: `below` is missing"),
        ("{cheap: 3}", "1:19: tree[0].require: `below` is missing"),
        (
            "{cheap: {below: ten}}",
            "1:34: tree[0].require.cheap.below: a number should stand here, not \"ten\"",
        ),
        (
            "{cheap: {below: .nan}}",
            "1:34: tree[0].require.cheap.below: NaN is not a finite number",
        ),
        (
            "{cheap: {below: 1, max_age: 3}}",
            "1:46: tree[0].require.cheap.max_age: 3 needs a unit; write \"3s\"",
        ),
        (
            "{cheap: {below: 1, unit: euro}}",
            "1:19: tree[0].require: nobody counts in euro",
        ),
        (
            "{cheap: {below: 1, unti: cent}}",
            "1:37: tree[0].require.cheap.unti: unknown key; did you mean \"unit\"?",
        ),
        (
            "{plain: 3}",
            "1:26: tree[0].require.plain: a map should stand here, not 3",
        ),
        (
            "plian",
            "1:18: tree[0].require: \"plian\" is not a filter; did you mean \"plain\"?",
        ),
    ] {
        let text = format!("tree: [{{require: {params}}}, {{pick: random}}]");
        assert_eq!(read(&text).unwrap_err(), fault, "{params}");
    }
}

#[test]
fn a_name_means_one_thing() {
    let mut registry = registry();
    let filter = |registry: &mut Registry, name: &str| {
        let made = registry.filter(name, |_| Err("never made".into()));
        made.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(
        filter(&mut registry, "slot").unwrap_err(),
        "\"slot\" is built in or registered already"
    );
    assert_eq!(
        filter(&mut registry, "cheap").unwrap_err(),
        "\"cheap\" is built in or registered already"
    );
    // A cost may be called as a filter is.
    assert_eq!(filter(&mut registry, "distance"), Ok(()));
    assert!(registry.cost("queue", |_| Err("never made".into())).is_err());
    assert!(
        registry
            .condition("critical", |_| Err("never made".into()))
            .is_err()
    );
    assert!(format!("{registry:?}").contains("cheap"));
}
