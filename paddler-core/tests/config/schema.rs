//! Do the schema of configs and their reader say the same?
//!
//! The schema is walked, and what it names is shown to the reader, and what the reader tells of a key that it does not know
//! is held against the schema.

use std::collections::BTreeSet;

use paddler_core::config::{Config, ConfigFaults, Fault, Mode, Registry, Value, tree_from_value};
use paddler_core::schedule::Condition;
use regex::Regex;
use serde_json::{Value as Json, json};

use crate::corpus::corpus;

const NOBODY: &str = "qqqqqqqqqqqqqqqq";

fn schema() -> Json {
    Config::schema(&Registry::new())
}

/// Why the value does not fit the schema; the words of JSON Schema that ours are made of, and no others.
fn misfit(value: &Json, schema: &Json, root: &Json) -> Option<String> {
    let Some(rules) = schema.as_object() else {
        return (*schema == json!(false)).then(|| format!("{value} is not wanted"));
    };
    rules
        .iter()
        .find_map(|(rule, said)| breach(value, rule, said, schema, root))
}

fn breach(value: &Json, rule: &str, said: &Json, schema: &Json, root: &Json) -> Option<String> {
    let fits = |schema: &Json| misfit(value, schema, root).is_none();
    let count = value.as_object().map(serde_json::Map::len);
    let least = |said: &Json, is: Option<usize>| is.is_none_or(|is| is as u64 >= said.as_u64().unwrap());
    let number =
        |holds: fn(f64, f64) -> bool| value.as_f64().is_none_or(|is| holds(is, said.as_f64().unwrap()));
    let list = |said: &Json| said.as_array().unwrap().clone();
    let kept = match rule {
        "$schema" | "$defs" | "title" | "description" | "default" => true,
        "type" if said.is_array() => list(said).iter().any(|one| is_a(value, one)),
        "type" => is_a(value, said),
        "enum" => list(said).contains(value),
        "pattern" => value.as_str().is_none_or(|text| regex(said).is_match(text)),
        "minLength" => least(said, value.as_str().map(|text| text.chars().count())),
        "minItems" => least(said, value.as_array().map(Vec::len)),
        "minProperties" => least(said, count),
        "maxProperties" => count.is_none_or(|count| count as u64 <= said.as_u64().unwrap()),
        "minimum" => number(|is, limit| is >= limit),
        "maximum" => number(|is, limit| is <= limit),
        "required" => list(said).iter().all(|key| {
            value
                .as_object()
                .is_none_or(|map| map.contains_key(key.as_str().unwrap()))
        }),
        "anyOf" => list(said).iter().any(fits),
        "oneOf" => list(said).iter().filter(|one| fits(one)).count() == 1,
        "$ref" => return misfit(value, part(said, root), root),
        "items" => {
            let mut items = value.as_array().into_iter().flatten();
            return items.find_map(|item| misfit(item, said, root));
        }
        "properties" => {
            let mut known = said.as_object().unwrap().iter();
            return known.find_map(|(key, schema)| misfit(value.get(key)?, schema, root));
        }
        "additionalProperties" => {
            let known = &schema["properties"];
            let mut others = value.as_object().into_iter().flatten();
            return others
                .find(|(key, under)| known.get(key).is_none() && misfit(under, said, root).is_some())
                .map(|(key, _)| format!("{key}: unknown key"));
        }
        other => panic!("{other} is no word that a schema of ours has"),
    };
    (!kept).then(|| format!("{value} does not keep to {rule} {said}"))
}

fn is_a(value: &Json, kind: &Json) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{other} is no kind that a schema of ours has"),
    }
}

fn regex(pattern: &Json) -> Regex {
    Regex::new(pattern.as_str().unwrap()).unwrap()
}

fn part<'s>(reference: &Json, root: &'s Json) -> &'s Json {
    let path = reference.as_str().unwrap().strip_prefix('#').unwrap();
    root.pointer(path).unwrap()
}

/// The data of a text that can be read as YAML.
fn data(text: &str) -> Option<Json> {
    let value = Value::from_yaml(text, "").ok()?;
    Some(serde_json::to_value(value).unwrap())
}

#[test]
fn what_is_read_fits() {
    let schema = schema();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/paddler.yaml");
    let example = std::fs::read_to_string(example).unwrap();
    let files = corpus("valid")
        .into_iter()
        .chain([("paddler.yaml".to_owned(), example)]);
    for (name, text) in files {
        assert_eq!(misfit(&data(&text).unwrap(), &schema, &schema), None, "{name}");
    }
}

#[test]
fn what_has_faults_of_form_does_not_fit() {
    let schema = schema();
    let of_form = [
        ": unknown key",
        "should stand here",
        "is not known here",
        "is out of range",
        "needs a unit",
        "is missing",
        "the text is empty",
        "the list is empty",
    ];
    let mut seen = 0;
    for (name, text) in corpus("invalid") {
        let listed = text.lines().filter(|line| line.starts_with("#> "));
        let is_of_form = |line: &str| of_form.iter().any(|words| line.contains(words));
        if let (true, Some(data)) = (listed.clone().any(is_of_form), data(&text)) {
            assert!(misfit(&data, &schema, &schema).is_some(), "{name}");
            seen += 1;
        }
    }
    assert!(seen >= 12, "{seen}");
}

/// Puts a value into a whole config, at one place.
type Put<'p> = &'p dyn Fn(Json) -> Json;

fn faults(config: &Json) -> Vec<Fault> {
    let value = Value::from_json(config).unwrap();
    let read = Config::from_value(&value, "", Mode::Gateway, &Registry::new());
    read.err().map(|faults| faults.faults).unwrap_or_default()
}

/// Walks a schema, and shows the reader what it names.
struct Walk<'s> {
    root: &'s Json,
    seen: BTreeSet<String>,
    maps: usize,
    words: usize,
    ranges: usize,
}

impl Walk<'_> {
    fn visit(&mut self, schema: &Json, put: Put<'_>) {
        assert_ne!(
            *schema,
            json!({}),
            "what stands here is not looked at: {}",
            put(json!(NOBODY))
        );
        if let Some(reference) = schema.get("$ref")
            && self.seen.insert(reference.to_string())
        {
            let part = part(reference, self.root).clone();
            self.names(&part, put);
            self.visit(&part, put);
        }
        for way in schema["anyOf"].as_array().into_iter().flatten() {
            self.visit(way, put);
        }
        for word in schema["enum"].as_array().into_iter().flatten() {
            self.words += 1;
            for fault in faults(&put(word.clone())) {
                let problem = fault.problem;
                assert!(!problem.contains(&word.to_string()), "{word}: {problem}");
            }
        }
        self.range(schema, put);
        if schema.get("items").is_some() {
            self.visit(&schema["items"], &|one| put(json!([one])));
        }
        if schema.get("properties").is_some() {
            self.map(schema, put);
        }
    }

    fn range(&mut self, schema: &Json, put: Put<'_>) {
        let beyond = |number: &Json| {
            let faults = faults(&put(number.clone()));
            faults.iter().any(|fault| fault.problem.contains("out of range"))
        };
        for (limit, step) in [("minimum", -1), ("maximum", 1)] {
            let Some(limit) = schema[limit].as_i64() else {
                continue;
            };
            self.ranges += 1;
            assert!(!beyond(&json!(limit)), "{}", put(json!(limit)));
            assert!(beyond(&json!(limit + step)), "{}", put(json!(limit + step)));
        }
    }

    /// What the reader says it knows, when it is shown a name that nobody has, is what the schema knows.
    fn names(&self, part: &Json, put: Put<'_>) {
        let ways = part["anyOf"].as_array().unwrap_or(&Vec::new()).clone();
        let words = ways
            .iter()
            .flat_map(|way| way["enum"].as_array().cloned().unwrap_or_default());
        let words = words.map(|word| word.as_str().unwrap().to_owned());
        let called = ways.iter().filter(|way| way["maxProperties"] == json!(1));
        let keys = called.flat_map(|way| way["properties"].as_object().unwrap().keys().cloned());
        let ours: BTreeSet<_> = words.chain(keys).collect();
        if !ours.is_empty() {
            assert_eq!(known(&put(json!(NOBODY))), Some(ours));
        }
    }

    fn map(&mut self, schema: &Json, put: Put<'_>) {
        self.maps += 1;
        let known_keys = schema["properties"].as_object().unwrap();
        let needed = schema["required"].as_array().into_iter().flatten();
        let mut least: serde_json::Map<_, _> = needed
            .map(|key| key.as_str().unwrap())
            .map(|key| (key.to_owned(), self.example(&known_keys[key])))
            .collect();
        for (key, under) in known_keys {
            let with = |value: Json| {
                let mut map = least.clone();
                map.insert(key.clone(), value);
                put(map.into())
            };
            let whole = with(self.example(under));
            assert_eq!(misfit_but_one_of(&whole, self.root), None, "{whole}");
            let unknown = faults(&whole);
            let unknown = unknown.iter().find(|fault| fault.problem == "unknown key");
            assert_eq!(unknown, None, "{whole}");
            self.visit(under, &with);
        }
        let any = &schema["additionalProperties"];
        if *any != json!(false) {
            self.visit(any, &|value| put(json!({"name": value})));
        } else if schema.get("maxProperties").is_none() {
            least.insert(NOBODY.to_owned(), json!(1));
            let keys = known_keys.keys().cloned().collect();
            assert_eq!(known(&put(least.into())), Some(keys));
        }
    }

    /// Something that fits.
    fn example(&self, schema: &Json) -> Json {
        if let Some(reference) = schema.get("$ref") {
            return match reference.as_str().unwrap() {
                "#/$defs/node" => json!({"pick": "random"}),
                _ => self.example(part(reference, self.root)),
            };
        }
        let first = |list: &Json| list.as_array().and_then(|list| list.first().cloned());
        if let Some(way) = first(&schema["anyOf"]) {
            return self.example(&way);
        }
        if let Some(word) = first(&schema["enum"]) {
            return word;
        }
        match schema["type"].as_str().unwrap() {
            "array" => json!([self.example(&schema["items"])]),
            "integer" | "number" => schema.get("maximum").cloned().unwrap_or(json!(1)),
            "boolean" => json!(true),
            "string" => {
                let texts = ["10s", "1MiB", "25%", "127.0.0.1:1", "http://a", "a"];
                let text = texts.into_iter().map(Json::from).rev();
                text.rev()
                    .find(|text| misfit(text, schema, self.root).is_none())
                    .unwrap()
            }
            _ => {
                let needed = schema["required"].as_array().into_iter().flatten();
                let key = |key: &Json| {
                    let key = key.as_str().unwrap();
                    (key.to_owned(), self.example(&schema["properties"][key]))
                };
                let pairs: serde_json::Map<_, _> = needed.map(key).collect();
                pairs.into()
            }
        }
    }
}

/// The keys or names that the reader tells are known where it meets one that is not.
fn known(config: &Json) -> Option<BTreeSet<String>> {
    let faults = faults(config);
    let about = faults.iter().find(|fault| {
        (fault.problem == "unknown key" && fault.path.ends_with(NOBODY)) || fault.problem.contains(NOBODY)
    });
    let mend = about?.mend.clone()?;
    let known = mend.strip_prefix("known: ")?.split(", ");
    Some(known.map(str::to_owned).collect())
}

/// Why it does not fit, but for one key of two that is not there.
fn misfit_but_one_of(config: &Json, schema: &Json) -> Option<String> {
    misfit(config, schema, schema).filter(|why| !why.contains("oneOf") && !why.contains("anyOf"))
}

#[test]
fn every_key_word_and_range_of_the_schema_is_the_readers_and_the_other_way_round() {
    let schema = schema();
    let mut walk = Walk {
        root: &schema,
        seen: BTreeSet::new(),
        maps: 0,
        words: 0,
        ranges: 0,
    };
    walk.visit(&schema, &|config| config);
    assert!(
        walk.maps >= 35 && walk.words >= 50 && walk.ranges >= 20,
        "{} maps, {} words, {} ranges",
        walk.maps,
        walk.words,
        walk.ranges
    );
}

#[test]
fn defaults_are_those_in_force() {
    /// Where nothing else has to be said.
    fn defaults(schema: &Json) -> Option<Json> {
        if schema.get("required").is_some() {
            return None;
        }
        let map = schema.get("properties").and_then(Json::as_object);
        let under = map.into_iter().flatten().filter_map(|(key, schema)| {
            let default = schema.get("default").cloned().or_else(|| defaults(schema));
            default.map(|default| (key.clone(), default))
        });
        let under: serde_json::Map<_, _> = under.collect();
        (!under.is_empty()).then(|| under.into())
    }
    let said = defaults(&schema()).unwrap();
    assert!(said.as_object().unwrap().len() >= 8, "{said}");
    let read = Config::from_value(
        &Value::from_json(&said).unwrap(),
        "",
        Mode::Gateway,
        &Registry::new(),
    );
    assert_eq!(format!("{:?}", read.unwrap()), format!("{:?}", Config::default()));
}

#[test]
fn names_that_a_host_adds_are_in_its_schema() {
    let mut registry = Registry::new();
    registry.condition("late", |_| Ok(Condition::Critical)).unwrap();
    let schema = Config::schema(&registry);
    let tree = json!({"tree": {"when": {"late": {"after": 22}}, "then": {"pick": "random"}, "else": {"pick": "random"}}});
    assert_eq!(misfit(&tree, &schema, &schema), None);
    assert!(misfit(&tree, &self::schema(), &self::schema()).is_some());
    let alone = json!({"tree": {"when": "late", "then": {"pick": "random"}, "else": {"pick": "random"}}});
    assert_eq!(misfit(&alone, &schema, &schema), None);
    let read: Result<_, ConfigFaults> = tree_from_value(&Value::from_json(&alone).unwrap(), "", &registry);
    assert!(read.is_ok());
}
