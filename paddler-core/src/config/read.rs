//! How is a value read as what it should be, with a fault where it is not?
//!
//! Each reader gives `None` once it has added a fault, and whoever asked goes on with the next part, so that one reading
//! finds every fault.

use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;

use super::fault::Faults;
pub(super) use super::fields::Fields;
use super::schema::{ANY, PROBE};
use super::suggest;
use super::units;
use super::value::{Key, Kind, Place, Value, quoted};

/// Where in the config a value is: keys and positions from the root.
#[derive(Clone, Default)]
pub(super) struct Path<'v>(Option<Rc<(Path<'v>, Step<'v>)>>);

pub(super) enum Step<'v> {
    Key(&'v str),
    Index(usize),
    /// A part of the language that can stand in many places, as if it stood at the root.
    Part(&'static str),
}

impl<'v> Path<'v> {
    pub(super) fn key(&self, key: &'v str) -> Self {
        Self(Some(Rc::new((self.clone(), Step::Key(key)))))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        Self(Some(Rc::new((self.clone(), Step::Index(index)))))
    }

    pub(super) fn part(name: &'static str) -> Self {
        Self(Some(Rc::new((Self::default(), Step::Part(name)))))
    }

    /// From the root on.
    pub(super) fn steps(&self) -> Vec<&Step<'v>> {
        let mut steps = Vec::new();
        let mut path = self;
        while let Some((parent, step)) = path.0.as_deref() {
            steps.push(step);
            path = parent;
        }
        steps.reverse();
        steps
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As deep as values are: 64 at most.
        let Some((parent, step)) = self.0.as_deref() else {
            return Ok(());
        };
        parent.fmt(f)?;
        match step {
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Part(name) => f.write_str(name),
            Step::Key(key) => {
                let plain = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
                if key.is_empty() || key.len() > 60 || !key.chars().all(plain) {
                    write!(f, "[{}]", quoted(key))
                } else if parent.0.is_none() {
                    f.write_str(key)
                } else {
                    write!(f, ".{key}")
                }
            }
        }
    }
}

/// A value and where it is.
#[derive(Clone)]
pub(super) struct At<'v> {
    pub(super) value: &'v Value,
    pub(super) path: Path<'v>,
    /// Where it begins; for what stands under a key and has no place of its own, where the key begins.
    pub(super) place: Option<Place>,
}

impl<'v> At<'v> {
    pub(super) fn root(value: &'v Value) -> Self {
        Self {
            value,
            path: Path::default(),
            place: value.place,
        }
    }

    pub(super) fn under(&self, key: &'v Key, value: &'v Value) -> Self {
        Self {
            value,
            path: self.path.key(&key.text),
            place: value.place.or(key.place),
        }
    }

    pub(super) fn fault(&self, faults: &mut Faults, problem: impl Into<String>) {
        faults.add(&self.path, self.place, problem, None);
    }

    pub(super) fn fault_mend(
        &self,
        faults: &mut Faults,
        problem: impl Into<String>,
        mend: impl Into<String>,
    ) {
        faults.add(&self.path, self.place, problem, Some(mend.into()));
    }

    /// A fault that says what should stand here; none where the value was refused already.
    pub(super) fn wrong<T>(&self, faults: &mut Faults, wanted: &str) -> Option<T> {
        if self.value.kind != Kind::Refused {
            // A whole file that is one text is something else, such as keys: that is not repeated.
            let is_file = self.path.0.is_none() && matches!(self.value.kind, Kind::String(_));
            let found = if is_file {
                "plain text".to_owned()
            } else {
                self.value.what()
            };
            self.fault(faults, format!("{wanted} should stand here, not {found}"));
        }
        None
    }

    pub(super) fn text(&self, faults: &mut Faults) -> Option<&'v str> {
        self.takes(faults, || json!({"type": "string", "minLength": 1}));
        match &self.value.kind {
            Kind::String(text) if text.is_empty() => {
                self.fault(faults, "the text is empty");
                None
            }
            Kind::String(text) => Some(text),
            Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) => {
                let problem = format!("text should stand here, not {}", self.value.what());
                self.fault_mend(faults, problem, "put it in quotes");
                None
            }
            _ => self.wrong(faults, "text"),
        }
    }

    pub(super) fn bool(&self, faults: &mut Faults) -> Option<bool> {
        self.takes(faults, || json!({"type": "boolean"}));
        match self.value.kind {
            Kind::Bool(flag) => Some(flag),
            _ => self.wrong(faults, "true or false"),
        }
    }

    /// A whole number of the range, which is within that of `T`.
    pub(super) fn whole<T: TryFrom<i64>>(
        &self,
        faults: &mut Faults,
        range: RangeInclusive<i64>,
    ) -> Option<T> {
        self.takes(
            faults,
            || json!({"type": "integer", "minimum": range.start(), "maximum": range.end()}),
        );
        let Kind::Int(number) = self.value.kind else {
            return self.wrong(faults, "a whole number");
        };
        let fits = Some(number).filter(|number| range.contains(number));
        let fits = fits.and_then(|number| T::try_from(number).ok());
        if fits.is_none() {
            let (least, most) = range.into_inner();
            self.fault(faults, format!("{number} is out of range: {least} to {most}"));
        }
        fits
    }

    /// A number of the range, whole or not; never NaN.
    pub(super) fn number(&self, faults: &mut Faults, range: RangeInclusive<f64>) -> Option<f64> {
        // Beyond this, the limit is only that of the type.
        let bounded = |limit: f64| limit.abs() < f64::from(f32::MAX);
        self.takes(faults, || {
            let mut number = json!({"type": "number"});
            for (key, limit) in [("minimum", *range.start()), ("maximum", *range.end())] {
                if bounded(limit) {
                    number[key] = limit.into();
                }
            }
            number
        });
        let number = match self.value.kind {
            Kind::Int(number) => number as f64,
            Kind::Float(number) => number,
            _ => return self.wrong(faults, "a number"),
        };
        // NaN is in no range.
        if range.contains(&number) {
            return Some(number);
        }
        let shown = self.value.what();
        let problem = match (*range.start(), *range.end()) {
            (least, _) if !bounded(least) => format!("{shown} is not a finite number"),
            (least, most) if !bounded(most) => format!("{shown} is out of range: at least {least}"),
            (least, most) => format!("{shown} is out of range: {least} to {most}"),
        };
        self.fault(faults, problem);
        None
    }

    /// A share of the range, as a number or in percent: 0.25 is 25%.
    pub(super) fn share(&self, faults: &mut Faults, range: RangeInclusive<f64>) -> Option<f64> {
        if faults.notes() {
            self.takes(
                faults,
                || json!({"type": "string", "pattern": r"^[0-9]+(\.[0-9]*)?\s*%$"}),
            );
            return self.number(faults, range);
        }
        let percent = match &self.value.kind {
            Kind::Int(_) | Kind::Float(_) => return self.number(faults, range),
            Kind::String(text) => text.strip_suffix('%'),
            _ => None,
        };
        let Some(percent) = percent else {
            return self.wrong(faults, "a share such as 25% or 0.25");
        };
        let parsed = percent.trim_end().parse::<f64>().ok();
        let fits = parsed
            .map(|percent| percent / 100.0)
            .filter(|share| range.contains(share));
        if fits.is_none() {
            let [least, most] = [range.start(), range.end()].map(|share| share * 100.0);
            let problem = format!("{} is not a share of {least}% to {most}%", self.value.what());
            self.fault(faults, problem);
        }
        fits
    }

    pub(super) fn duration(&self, faults: &mut Faults, range: RangeInclusive<Duration>) -> Option<Duration> {
        let [least, most] = [range.start(), range.end()].map(|end| units::show_duration(*end));
        self.takes(faults, || {
            let what = format!("A time of {least} to {most}.");
            json!({"type": "string", "pattern": units::duration_pattern(), "description": what})
        });
        let parsed = match &self.value.kind {
            Kind::String(text) => units::duration(text),
            Kind::Int(_) | Kind::Float(_) => Err(units::needs_unit(&self.value.what(), "s")),
            _ => return self.wrong(faults, "a time such as 10s"),
        };
        let duration = self.parsed(faults, parsed)?;
        if !range.contains(&duration) {
            let duration = units::show_duration(duration);
            self.fault(faults, format!("{duration} is out of range: {least} to {most}"));
            return None;
        }
        Some(duration)
    }

    pub(super) fn bytes(&self, faults: &mut Faults, range: RangeInclusive<u64>) -> Option<u64> {
        let [least, most] = [range.start(), range.end()].map(|end| units::show_bytes(*end));
        self.takes(faults, || {
            let what = format!("A size of {least} to {most}.");
            json!({"type": "string", "pattern": units::bytes_pattern(), "description": what})
        });
        let parsed = match &self.value.kind {
            Kind::String(text) => units::bytes(text),
            Kind::Int(_) | Kind::Float(_) => Err(units::needs_unit(&self.value.what(), "MiB")),
            _ => return self.wrong(faults, "a size such as 64MiB"),
        };
        let bytes = self.parsed(faults, parsed)?;
        if !range.contains(&bytes) {
            let bytes = units::show_bytes(bytes);
            self.fault(faults, format!("{bytes} is out of range: {least} to {most}"));
            return None;
        }
        Some(bytes)
    }

    /// The value, or a fault with what is wrong and how to mend it.
    pub(super) fn parsed<T>(&self, faults: &mut Faults, parsed: Result<T, (String, String)>) -> Option<T> {
        match parsed {
            Ok(value) => Some(value),
            Err((problem, mend)) => {
                self.fault_mend(faults, problem, mend);
                None
            }
        }
    }

    /// One of these words, as what stands beside it.
    pub(super) fn word<T: Clone>(&self, faults: &mut Faults, words: &[(&str, T)]) -> Option<T> {
        for (word, _) in words {
            self.takes_word(faults, word);
        }
        let names = || words.iter().map(|(name, _)| *name).collect::<Vec<_>>();
        let Kind::String(text) = &self.value.kind else {
            return self.wrong(faults, &format!("one of {}", names().join(", ")));
        };
        let found = words.iter().find(|(name, _)| name == text);
        if found.is_none() {
            let problem = format!("{} is not known here", quoted(text));
            faults.add(&self.path, self.place, problem, suggest::mend(text, &names()));
        }
        found.map(|(_, value)| value.clone())
    }

    /// What a list holds.
    pub(super) fn list(&self, faults: &mut Faults) -> Option<Vec<At<'v>>> {
        if let Some(slot) = faults.slot(&self.path) {
            slot.list();
            return Some(vec![Self::probe(self.path.index(0))]);
        }
        let Kind::List(values) = &self.value.kind else {
            return self.wrong(faults, "a list");
        };
        let at = |(index, value): (usize, &'v Value)| At {
            value,
            path: self.path.index(index),
            place: value.place,
        };
        Some(values.iter().enumerate().map(at).collect())
    }

    /// What a list holds that has something in it.
    pub(super) fn some_list(&self, faults: &mut Faults) -> Option<Vec<At<'v>>> {
        let list = self.list(faults)?;
        if let Some(slot) = faults.slot(&self.path) {
            slot.not_empty();
        }
        if list.is_empty() {
            self.fault(faults, "the list is empty");
            return None;
        }
        Some(list)
    }

    /// The keys of a map, in order, with what stands under them.
    pub(super) fn pairs(&self, faults: &mut Faults) -> Option<Vec<(&'v Key, At<'v>)>> {
        if let Some(slot) = faults.slot(&self.path) {
            slot.map();
            return Some(vec![(&ANY, Self::probe(self.path.key(&ANY.text)))]);
        }
        let Kind::Map(pairs) = &self.value.kind else {
            return self.wrong(faults, "a map");
        };
        let pairs = pairs.iter().map(|(key, value)| (key, self.under(key, value)));
        Some(pairs.collect())
    }

    /// What stands at a path while readers are asked what they take.
    pub(super) fn probe(path: Path<'v>) -> Self {
        Self {
            path,
            ..Self::root(&PROBE)
        }
    }
}
