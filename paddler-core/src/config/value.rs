//! What does a config hold, and where does each part of it stand?

use std::fmt;

use serde::{Serialize, Serializer};

use super::fault::{ConfigFaults, Fault};

/// A place in a text. Both count from 1; columns are characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value with its place.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// Where it begins; `None` where it did not come from a text. A value that is not written (`key:`) is where its key is.
    pub place: Option<Place>,
    /// What it is.
    pub kind: Kind,
}

/// The key of a map with its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// The key itself, as written.
    pub text: String,
    /// Where it begins.
    pub place: Option<Place>,
}

/// What a value is.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// Nothing.
    Null,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number, also infinite or not a number.
    Float(f64),
    /// Text.
    String(String),
    /// Values in order.
    List(Vec<Value>),
    /// Values under keys, in the order of the text. No key is there twice.
    Map(Vec<(Key, Value)>),
    /// What stood here was refused with a fault of its own; who meets it says no more.
    Refused,
    /// Something that a host was given and no config can hold, in a few words for a person. Who meets it says that it cannot
    /// stand here, and where that is.
    Other(String),
}

impl Value {
    /// The deepest that lists and maps may stand in each other.
    pub const MAX_DEPTH: usize = 64;

    /// A value without a place.
    pub fn new(kind: Kind) -> Self {
        Self { place: None, kind }
    }

    /// Takes a JSON value. It has no places; whole numbers beyond 64 bits become [`Kind::Float`].
    ///
    /// ```
    /// use paddler_core::config::{Kind, Value};
    ///
    /// let value = Value::from_json(&serde_json::json!({"weight": 3})).unwrap();
    /// assert_eq!(value.get("weight").unwrap().kind, Kind::Int(3));
    /// ```
    ///
    /// # Errors
    /// When it is deeper than [`MAX_DEPTH`](Self::MAX_DEPTH).
    pub fn from_json(json: &serde_json::Value) -> Result<Self, ConfigFaults> {
        from_json(json, 0).ok_or_else(|| ConfigFaults::one(Fault::new("", None, TOO_DEEP)))
    }

    /// The value under a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let Kind::Map(pairs) = &self.kind else {
            return None;
        };
        pairs
            .iter()
            .find(|(other, _)| other.text == key)
            .map(|(_, value)| value)
    }

    /// What it is, for people.
    pub(super) fn what(&self) -> String {
        match &self.kind {
            Kind::Null => "nothing".into(),
            Kind::Bool(flag) => flag.to_string(),
            Kind::Int(number) => number.to_string(),
            Kind::Float(number) => format!("{number:?}"),
            Kind::String(text) => quoted(text),
            Kind::List(_) => "a list".into(),
            Kind::Map(_) => "a map".into(),
            Kind::Refused => "something refused".into(),
            Kind::Other(what) => what.clone(),
        }
    }
}

/// As the data that it is; what no config can hold as the words for it.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            Kind::Null | Kind::Refused => to.serialize_unit(),
            Kind::Bool(flag) => to.serialize_bool(*flag),
            Kind::Int(number) => to.serialize_i64(*number),
            Kind::Float(number) => to.serialize_f64(*number),
            Kind::String(text) | Kind::Other(text) => to.serialize_str(text),
            Kind::List(values) => to.collect_seq(values),
            Kind::Map(pairs) => to.collect_map(pairs.iter().map(|(key, value)| (&key.text, value))),
        }
    }
}

pub(super) const TOO_DEEP: &str = "lists and maps stand in each other more than 64 deep";

/// The text in quotes, cut short if it is long: a fault is one line.
pub(super) fn quoted(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}...", &text[..end]),
    }
}

fn from_json(json: &serde_json::Value, depth: usize) -> Option<Value> {
    use serde_json::Value as Json;
    let deeper = (depth < Value::MAX_DEPTH).then_some(depth + 1);
    let kind = match json {
        Json::Null => Kind::Null,
        Json::Bool(flag) => Kind::Bool(*flag),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Kind::Int(whole),
            None => Kind::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Kind::String(text.clone()),
        Json::Array(values) => {
            let deeper = deeper?;
            Kind::List(
                values
                    .iter()
                    .map(|one| from_json(one, deeper))
                    .collect::<Option<_>>()?,
            )
        }
        Json::Object(pairs) => {
            let deeper = deeper?;
            let pair = |(text, value): (&String, _)| {
                let key = Key {
                    text: text.clone(),
                    place: None,
                };
                Some((key, from_json(value, deeper)?))
            };
            Kind::Map(pairs.iter().map(pair).collect::<Option<_>>()?)
        }
    };
    Some(Value::new(kind))
}
