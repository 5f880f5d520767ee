//! How is YAML read so that each value keeps its place?
//!
//! YAML is wider than a config needs, and its width surprises: the same value under two names, types by tag, several
//! documents of which the last wins. What is not needed is refused. JSON is YAML, so this reads JSON too.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput};

use super::fault::{ConfigFaults, Fault, Faults};
use super::read::Path;
use super::value::{Key, Kind, Place, TOO_DEEP, Value};

impl Value {
    /// The longest text that is read, in bytes: 4 MiB, some ten thousand upstreams.
    pub const MAX_TEXT: usize = 4 << 20;

    /// Reads one document of YAML 1.2 (or JSON). `name` is that of the file, for the faults.
    ///
    /// ```
    /// use paddler_core::config::{Kind, Place, Value};
    ///
    /// let value = Value::from_yaml("queue:\n  max_requests: 30\n", "paddler.yaml").unwrap();
    /// let most = value.get("queue").unwrap().get("max_requests").unwrap();
    /// assert_eq!(most.kind, Kind::Int(30));
    /// assert_eq!(most.place, Some(Place { line: 2, column: 17 }));
    /// ```
    ///
    /// # Errors
    /// A text beyond [`MAX_TEXT`](Self::MAX_TEXT) or [`MAX_DEPTH`](Self::MAX_DEPTH), or one that is not YAML: that fault,
    /// and those before it. Else every anchor, alias, tag, key that is there twice or is not plain text, and every
    /// document after the first.
    pub fn from_yaml(text: &str, name: &str) -> Result<Value, ConfigFaults> {
        let mut faults = Faults::default();
        let value = read(text, &mut faults);
        faults.finish(name, value)
    }
}

/// Reads what can be read. `None`: nothing can be said of the rest, and a fault says why.
pub(super) fn read(text: &str, faults: &mut Faults) -> Option<Value> {
    if text.len() > Value::MAX_TEXT {
        faults.push(Fault::new("", None, "the text is longer than 4 MiB"));
        return None;
    }
    let mut builder = Builder {
        faults,
        open: Vec::new(),
        root: None,
        documents: 0,
    };
    let mut parser: Parser<'_, StrInput<'_>> = Parser::new_from_str(text);
    loop {
        match parser.next_event() {
            Some(Ok((event, span))) => {
                if builder.take(event, place(&span.start)).is_break() {
                    break;
                }
            }
            Some(Err(error)) => {
                builder.broken(&error);
                return None;
            }
            None => break,
        }
    }
    if builder.open.is_empty() {
        // An empty file says nothing, which is allowed: everything has a default.
        Some(builder.root.unwrap_or(Value::new(Kind::Null)))
    } else {
        None
    }
}

fn place(marker: &Marker) -> Place {
    Place {
        line: marker.line(),
        column: marker.col() + 1,
    }
}

/// A list or map that has not ended.
enum Open {
    List(Place, Vec<Value>),
    Map {
        place: Place,
        pairs: Vec<(Key, Value)>,
        /// Where each key was first.
        seen: HashMap<String, Place>,
        /// The key whose value comes next; `Err` for one that was refused.
        key: Option<Result<Key, Place>>,
    },
}

struct Builder<'f> {
    faults: &'f mut Faults,
    open: Vec<Open>,
    root: Option<Value>,
    documents: usize,
}

type Flow = std::ops::ControlFlow<()>;

impl Builder<'_> {
    fn take(&mut self, event: Event<'_>, place: Place) -> Flow {
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let fault = Fault::new("", Some(place), "a second document begins here");
                    self.faults.push(fault.mend("keep one document in the file"));
                    return Flow::Break(());
                }
            }
            Event::Alias(_) => {
                self.fault(place, "aliases are not read", "write the value out");
                self.put(place, Kind::Refused);
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_extras(place, anchor, tag.is_some());
                let text = text.into_owned();
                self.scalar(place, text, style == ScalarStyle::Plain);
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_extras(place, anchor, tag.is_some());
                return self.begin(place, Open::List(place, Vec::new()));
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_extras(place, anchor, tag.is_some());
                let map = Open::Map {
                    place,
                    pairs: Vec::new(),
                    seen: HashMap::new(),
                    key: None,
                };
                return self.begin(place, map);
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Flow::Continue(())
    }

    fn begin(&mut self, place: Place, open: Open) -> Flow {
        if self.open.len() >= Value::MAX_DEPTH {
            self.fault(place, TOO_DEEP, "flatten it");
            return Flow::Break(());
        }
        self.open.push(open);
        Flow::Continue(())
    }

    fn end(&mut self) {
        match self.open.pop() {
            Some(Open::List(place, values)) => self.put(place, Kind::List(values)),
            Some(Open::Map { place, pairs, .. }) => self.put(place, Kind::Map(pairs)),
            None => {}
        }
    }

    fn scalar(&mut self, place: Place, text: String, plain: bool) {
        if let Some(Open::Map { key: key @ None, .. }) = self.open.last_mut() {
            *key = Some(Ok(Key {
                text,
                place: Some(place),
            }));
            return;
        }
        // What is not written has no place of its own.
        let unwritten = plain && text.is_empty();
        let place = match self.open.last() {
            Some(Open::Map {
                key: Some(Ok(key)), ..
            }) if unwritten => key.place.unwrap_or(place),
            _ => place,
        };
        self.put(place, if plain { typed(text) } else { Kind::String(text) });
    }

    /// Puts a value where the reading is.
    fn put(&mut self, place: Place, kind: Kind) {
        let value = Value {
            place: Some(place),
            kind,
        };
        match self.open.last_mut() {
            None => self.root = Some(value),
            Some(Open::List(_, values)) => values.push(value),
            Some(Open::Map { key: key @ None, .. }) => {
                *key = Some(Err(place));
                if value.kind != Kind::Refused {
                    self.fault(
                        place,
                        "a key must be plain text",
                        "put the list or map under a name",
                    );
                }
            }
            Some(Open::Map { pairs, seen, key, .. }) => {
                let Some(Ok(key)) = key.take() else {
                    return;
                };
                match seen.entry(key.text.clone()) {
                    Entry::Vacant(free) => {
                        free.insert(key.place.unwrap_or(place));
                        pairs.push((key, value));
                    }
                    Entry::Occupied(first) => {
                        let mend = format!("the first is in line {}; keep one", first.get().line);
                        let path = path(&self.open).key(&key.text);
                        self.faults
                            .add(&path, key.place, "the key is here twice", Some(mend));
                    }
                }
            }
        }
    }

    fn refuse_extras(&mut self, place: Place, anchor: usize, tag: bool) {
        if anchor != 0 {
            self.fault(place, "anchors are not read", "leave it out");
        }
        if tag {
            self.fault(
                place,
                "tags are not read",
                "leave it out; put text in quotes where it looks like a number",
            );
        }
    }

    fn fault(&mut self, place: Place, problem: &str, mend: &str) {
        let path = match self.open.last() {
            Some(Open::List(_, values)) => path(&self.open).index(values.len()),
            Some(Open::Map {
                key: Some(Ok(key)), ..
            }) => path(&self.open).key(&key.text),
            _ => path(&self.open),
        };
        self.faults.add(&path, Some(place), problem, Some(mend.into()));
    }

    fn broken(&mut self, error: &ScanError) {
        let place = place(error.marker());
        if error.info().contains("recursion limit") {
            return self
                .faults
                .push(Fault::new("", Some(place), TOO_DEEP).mend("flatten it"));
        }
        let problem = format!("this is not YAML: {}", error.info());
        self.faults.push(Fault::new("", Some(place), problem));
    }
}

/// The path of the innermost list or map that is open.
fn path(open: &[Open]) -> Path<'_> {
    let outer = open.len().saturating_sub(1);
    open[..outer]
        .iter()
        .fold(Path::default(), |path, open| match open {
            Open::List(_, values) => path.index(values.len()),
            Open::Map {
                key: Some(Ok(key)), ..
            } => path.key(&key.text),
            Open::Map { .. } => path.key("?"),
        })
}

/// What a plain scalar is, by the core schema of YAML 1.2: `no` and `on` are text.
fn typed(text: String) -> Kind {
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" => return Kind::Bool(true),
        "false" | "False" | "FALSE" => return Kind::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Kind::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Kind::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Kind::Float(f64::NEG_INFINITY),
        _ => {}
    }
    let radix = |prefix, radix| {
        let digits = text.strip_prefix(prefix)?;
        digits
            .starts_with(|c: char| c.is_ascii_hexdigit())
            .then_some(())?;
        i64::from_str_radix(digits, radix).ok()
    };
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Kind::Int(number);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
    // Rust reads `inf` and `1_000`-less forms that YAML does not; a number here begins with a digit or a point and digit.
    let begins = digits.strip_prefix('.').unwrap_or(digits);
    if !begins.starts_with(|c: char| c.is_ascii_digit()) {
        return Kind::String(text);
    }
    if let Ok(number) = text.parse() {
        return Kind::Int(number);
    }
    match text.parse() {
        Ok(number) => Kind::Float(number),
        Err(_) => Kind::String(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        for (text, kind) in [
            ("", Kind::Null),
            ("true", Kind::Bool(true)),
            ("12", Kind::Int(12)),
            ("-0x", Kind::String("-0x".into())),
            ("0x1F", Kind::Int(31)),
            ("0o17", Kind::Int(15)),
            ("+7", Kind::Int(7)),
            ("1.5", Kind::Float(1.5)),
            (".5", Kind::Float(0.5)),
            ("1e3", Kind::Float(1000.0)),
            ("99999999999999999999", Kind::Float(1e20)),
            ("no", Kind::String("no".into())),
            ("off", Kind::String("off".into())),
            ("inf", Kind::String("inf".into())),
            ("infinity", Kind::String("infinity".into())),
            ("nan", Kind::String("nan".into())),
            ("10s", Kind::String("10s".into())),
            ("1.2.3", Kind::String("1.2.3".into())),
            ("0x+1", Kind::String("0x+1".into())),
            (".", Kind::String(".".into())),
            ("-", Kind::String("-".into())),
        ] {
            assert_eq!(typed(text.into()), kind, "{text:?}");
        }
        assert!(matches!(typed(".nan".into()), Kind::Float(nan) if nan.is_nan()));
    }
}
