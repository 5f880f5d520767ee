use super::*;

fn asked(rules: &ModelRules, name: &str, seed: u64) -> (Option<Arc<str>>, Arc<str>) {
    let mut facts = RequestFacts::new();
    (facts.model, facts.seed) = (Some(name.into()), seed);
    rules.resolve(&mut facts);
    let once = facts.clone();
    rules.resolve(&mut facts);
    assert_eq!(facts, once, "it is resolved once");
    (facts.asked, facts.model.unwrap())
}

fn faults(rules: &[(&str, ModelRule)]) -> Vec<String> {
    match ModelRules::new(rules.iter().cloned()) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn the_name_itself_goes_first_and_then_the_longest_beginning() {
    let rules = ModelRules::new([
        ("*", ModelRule::alias("any")),
        ("gpt-*", ModelRule::alias("llama")),
        ("gpt-4-*", ModelRule::alias("big/*")),
        ("gpt-4-mini", ModelRule::alias("small")),
        ("own", ModelRule::default()),
    ])
    .unwrap();
    for (name, model) in [
        ("gpt-4-mini", "small"),
        ("gpt-4-minix", "big/minix"),
        ("gpt-4-", "big/"),
        ("gpt-4", "llama"),
        ("gpt", "any"),
        ("GPT-4", "any"),
    ] {
        assert_eq!(asked(&rules, name, 1), (Some(name.into()), model.into()));
    }
    for name in ["own", "any"] {
        assert_eq!(asked(&rules, name, 1), (None, name.into()), "it is what it says");
    }
    let rest = ModelRules::new([("x/*", ModelRule::alias("*"))]).unwrap();
    assert_eq!(asked(&rest, "x/m", 1), (Some("x/m".into()), "m".into()));
    assert_eq!(
        asked(&rest, "x/", 1),
        (None, "x/".into()),
        "and not a model without a name"
    );
    let mut nothing = RequestFacts::new();
    rules.resolve(&mut nothing);
    assert_eq!(nothing, RequestFacts::new(), "no name stays no name");
    let names: Vec<_> = rules.iter().map(|(name, _)| name.into_owned()).collect();
    assert_eq!(names, ["gpt-4-mini", "own", "gpt-4-*", "gpt-*", "*"]);
    assert_eq!(rules.aliases().collect::<Vec<_>>(), [&"gpt-4-mini".into()]);
}

#[test]
fn each_target_gets_its_share_and_a_seed_the_same_one_each_time() {
    let rule = ModelRule::weighted([("a", 90), ("off", 0), ("b", 10)]);
    let rules = ModelRules::new([("ab", rule)]).unwrap();
    let drawn: Vec<_> = (0..10_000).map(|seed| asked(&rules, "ab", seed).1).collect();
    let share = |name: &str| drawn.iter().filter(|model| ***model == *name).count();
    assert_eq!(share("a") + share("b"), 10_000);
    // Five times the deviation of a fair draw.
    assert!((850..1_150).contains(&share("b")), "{}", share("b"));
    assert_eq!(asked(&rules, "ab", 77), asked(&rules, "ab", 77));
    assert_eq!(rules.targets("ab").collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(rules.targets("a").count(), 0);
}

#[test]
fn each_fault_is_told_with_what_mends_it() {
    let alias = ModelRule::alias;
    assert_eq!(
        faults(&[
            ("a", alias("b")),
            ("b", alias("a")),
            ("c", alias("c")),
            ("d", alias("c"))
        ]),
        [
            "the model \"a\": \"b\" stands for \"a\" itself; write what is meant in the end",
            "the model \"b\": \"a\" stands for \"b\" itself; write what is meant in the end",
        ],
        "a loop is a chain, and a name that stands for itself is none"
    );
    for (rules, expected) in [
        (
            vec![("a*b", alias("c"))],
            "`*` stands for the rest of a name; write it at the end",
        ),
        (
            vec![("a**", alias("c"))],
            "`*` stands for the rest of a name; write it at the end",
        ),
        (
            vec![("", alias("c"))],
            "this is not the name of a model; write 1 to 1,024 bytes without control characters",
        ),
        (
            vec![("a", alias("b\nc"))],
            "\"b\\nc\" is not the name of a model; write 1 to 1,024 bytes without control characters",
        ),
        (
            vec![("a", alias("b*"))],
            "`*` in a target is the rest of a name that ends in `*`, once; write the name of a model",
        ),
        (
            vec![("a*", alias("*/*"))],
            "`*` in a target is the rest of a name that ends in `*`, once; write the name of a model",
        ),
        (
            vec![("a", ModelRule::weighted([("b", 0), ("c", 0)]))],
            "no target has a weight above 0; give one of them a weight",
        ),
        (
            vec![("a", ModelRule::weighted([("b", 1_000_001)]))],
            "the weight 1000001 is out of range: 0 to 1000000; only their proportion counts",
        ),
        (
            vec![("a", ModelRule::weighted([("b", 1), ("b", 2)]))],
            "\"b\" is one of its targets twice; keep one of them",
        ),
        (
            vec![("a*", alias("b")), ("a*", alias("c"))],
            "there are two rules for this name; keep one of them",
        ),
    ] {
        let name = rules[0].0;
        assert_eq!(faults(&rules), [format!("the model {name:?}: {expected}")]);
    }
    let many = (0..=ModelRules::MOST).map(|number| (number.to_string(), alias("a")));
    let many = ModelRules::new(many).unwrap_err();
    assert_eq!((many.len(), &*many[0].name), (1, "1000"));
    let targets = (0..=100).map(|number| (number.to_string(), 1));
    let many = ModelRules::new([("a", ModelRule::weighted(targets))]).unwrap_err();
    assert_eq!(many[0].problem, "it stands for more than 100 models");
}
