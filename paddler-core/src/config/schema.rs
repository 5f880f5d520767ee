//! What may stand in a config, for editors and whoever else checks one before it is read?
//!
//! The readers tell it themselves: they read a probe, a value that stands for any, and each of them notes what it would take
//! there. So no key, word or range is written down a second time. What one setting asks of another is in no schema: a file
//! that fits it may still have faults, which reading tells.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value as Json, json};

use super::fault::Faults;
use super::read::{At, Path, Step};
use super::registry::Registry;
use super::router::{Config, read_over};
use super::value::{Key, Kind, Value};

/// What stands everywhere while readers are asked what they take. They pass over it without a fault.
pub(super) static PROBE: Value = Value {
    place: None,
    kind: Kind::Refused,
};

/// The key of a map whose keys can be any.
pub(super) static ANY: LazyLock<Key> = LazyLock::new(|| Key {
    text: "*".to_owned(),
    place: None,
});

/// What was noted so far.
#[derive(Debug, Default)]
pub(super) struct Shapes {
    root: Slot,
    /// What can stand in many places, and in itself.
    parts: BTreeMap<&'static str, Slot>,
}

/// What is taken at one place: each of these.
#[derive(Debug, Default)]
pub(super) struct Slot {
    words: BTreeSet<String>,
    others: Vec<Json>,
    list: Option<Box<List>>,
    map: Option<Fields>,
    default: Option<Json>,
}

#[derive(Debug, Default)]
struct List {
    item: Slot,
    not_empty: bool,
}

#[derive(Debug, Default)]
struct Fields {
    known: BTreeMap<String, Slot>,
    any: Option<Box<Slot>>,
    needed: BTreeSet<&'static str>,
    /// Keys of which there is exactly one.
    one_of: Vec<&'static str>,
    one_key: bool,
}

impl Shapes {
    /// The place at a path.
    pub(super) fn at(&mut self, path: &Path<'_>) -> &mut Slot {
        let steps = path.steps();
        let mut slot = match steps.first() {
            Some(Step::Part(name)) => self.parts.entry(name).or_default(),
            _ => &mut self.root,
        };
        for step in steps {
            slot = match step {
                Step::Part(_) => slot,
                Step::Index(_) => &mut slot.list.get_or_insert_default().item,
                Step::Key(key) => {
                    let fields = slot.map.get_or_insert_default();
                    if *key == ANY.text {
                        fields.any.get_or_insert_default()
                    } else {
                        fields.known.entry((*key).to_owned()).or_default()
                    }
                }
            };
        }
        slot
    }

    /// Whether the part has not been asked for before.
    pub(super) fn is_new(&mut self, part: &'static str) -> bool {
        let known = self.parts.len();
        self.parts.entry(part).or_default();
        self.parts.len() > known
    }

    fn into_json(self) -> Json {
        let mut whole = self.root.into_json();
        let parts: Map<_, _> = self
            .parts
            .into_iter()
            .map(|(name, slot)| (name.to_owned(), slot.into_json()))
            .collect();
        whole["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
        whole["title"] = "Config of Paddler".into();
        // A file with nothing in it leaves every setting as it is.
        whole["type"] = json!(["object", "null"]);
        whole["$defs"] = parts.into();
        whole
    }
}

impl Slot {
    pub(super) fn word(&mut self, word: &str) {
        self.words.insert(word.to_owned());
    }

    pub(super) fn takes(&mut self, shape: Json) {
        if !self.others.contains(&shape) {
            self.others.push(shape);
        }
    }

    pub(super) fn default(&mut self, default: Json) {
        self.default = Some(default);
    }

    pub(super) fn list(&mut self) {
        self.list.get_or_insert_default();
    }

    pub(super) fn not_empty(&mut self) {
        self.list.get_or_insert_default().not_empty = true;
    }

    pub(super) fn map(&mut self) {
        self.map.get_or_insert_default();
    }

    pub(super) fn need(&mut self, key: &'static str) {
        self.map.get_or_insert_default().needed.insert(key);
    }

    pub(super) fn one_of(&mut self, keys: [&'static str; 2]) {
        self.map.get_or_insert_default().one_of = keys.into();
    }

    pub(super) fn one_key(&mut self) {
        self.map.get_or_insert_default().one_key = true;
    }

    fn into_json(self) -> Json {
        let mut ways = Vec::new();
        if !self.words.is_empty() {
            ways.push(json!({"enum": self.words}));
        }
        ways.extend(self.others);
        ways.extend(self.list.map(|list| list.into_json()));
        ways.extend(self.map.map(Fields::into_json));
        let mut whole = match ways.len() {
            // Nobody looks at it: anything may stand here.
            0 => json!({}),
            1 => ways.remove(0),
            _ => json!({"anyOf": ways}),
        };
        if let Some(default) = self.default {
            whole["default"] = default;
        }
        whole
    }
}

impl List {
    fn into_json(self) -> Json {
        let mut list = json!({"type": "array", "items": self.item.into_json()});
        if self.not_empty {
            list["minItems"] = 1.into();
        }
        list
    }
}

impl Fields {
    fn into_json(self) -> Json {
        let known: Map<_, _> = self
            .known
            .into_iter()
            .map(|(key, slot)| (key, slot.into_json()))
            .collect();
        let any = self.any.map_or(Json::from(false), |slot| slot.into_json());
        let mut map = json!({"type": "object", "properties": known, "additionalProperties": any});
        if !self.needed.is_empty() {
            map["required"] = json!(self.needed);
        }
        if !self.one_of.is_empty() {
            let each = self.one_of.iter().map(|key| json!({"required": [key]}));
            map["oneOf"] = each.collect();
        }
        if self.one_key {
            map["minProperties"] = 1.into();
            map["maxProperties"] = 1.into();
        }
        map
    }
}

impl<'v> At<'v> {
    /// Notes what is taken here, if that is asked.
    pub(super) fn takes(&self, faults: &mut Faults, shape: impl FnOnce() -> Json) {
        if let Some(slot) = faults.slot(&self.path) {
            slot.takes(shape());
        }
    }

    /// Notes a word that is taken here, if that is asked.
    pub(super) fn takes_word(&self, faults: &mut Faults, word: &str) {
        if let Some(slot) = faults.slot(&self.path) {
            slot.word(word);
        }
    }

    /// Notes what counts if nothing stands here, if that is asked.
    pub(super) fn defaults_to(&self, faults: &mut Faults, default: impl FnOnce() -> Json) {
        if let Some(slot) = faults.slot(&self.path) {
            slot.default(default());
        }
    }

    /// Notes that a part stands here which can stand elsewhere, too. Gives where it is to be read, if nobody has.
    pub(super) fn refer(&self, part: &'static str, faults: &mut Faults) -> Option<At<'v>> {
        let shapes = faults.shapes()?;
        let reference = json!({"$ref": format!("#/$defs/{part}")});
        shapes.at(&self.path).takes(reference);
        shapes.is_new(part).then(|| Self::probe(Path::part(part)))
    }
}

impl Config {
    /// What a config file may hold, as JSON Schema (draft 2020-12), with the names that the registry adds.
    ///
    /// What one setting asks of another is not in it: [`read`](Self::read) finds those faults.
    ///
    /// ```
    /// use paddler_core::config::{Config, Registry};
    ///
    /// let schema = Config::schema(&Registry::new());
    /// let wait = &schema["properties"]["queue"]["properties"]["max_wait"];
    /// assert_eq!((wait["type"].as_str(), wait["default"].as_str()), (Some("string"), Some("10s")));
    /// ```
    pub fn schema(registry: &Registry) -> Json {
        let mut faults = Faults::noting();
        read_over(&PROBE, Self::default(), registry, &mut faults);
        faults.into_shapes().into_json()
    }
}
