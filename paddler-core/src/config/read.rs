//! How is a value read as what it should be, with a fault where it is not?
//!
//! Each reader gives `None` once it has added a fault, and whoever asked goes on with the next part, so that one reading
//! finds every fault.

use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use super::fault::Faults;
use super::suggest;
use super::units;
use super::value::{Key, Kind, Place, Value, quoted};

/// Where in the config a value is: keys and positions from the root.
#[derive(Clone, Default)]
pub(super) struct Path<'v>(Option<Rc<(Path<'v>, Step<'v>)>>);

enum Step<'v> {
    Key(&'v str),
    Index(usize),
}

impl<'v> Path<'v> {
    pub(super) fn key(&self, key: &'v str) -> Self {
        Self(Some(Rc::new((self.clone(), Step::Key(key)))))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        Self(Some(Rc::new((self.clone(), Step::Index(index)))))
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
            self.fault(
                faults,
                format!("{wanted} should stand here, not {}", self.value.what()),
            );
        }
        None
    }

    pub(super) fn text(&self, faults: &mut Faults) -> Option<&'v str> {
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
        // Beyond this, the limit is only that of the type.
        let bounded = |limit: f64| limit.abs() < f64::from(f32::MAX);
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
        let parsed = match &self.value.kind {
            Kind::String(text) => units::duration(text),
            Kind::Int(_) | Kind::Float(_) => Err(units::needs_unit(&self.value.what(), "s")),
            _ => return self.wrong(faults, "a time such as 10s"),
        };
        let duration = self.parsed(faults, parsed)?;
        if !range.contains(&duration) {
            let (least, most) = range.into_inner();
            let [duration, least, most] = [duration, least, most].map(units::show_duration);
            self.fault(faults, format!("{duration} is out of range: {least} to {most}"));
            return None;
        }
        Some(duration)
    }

    pub(super) fn bytes(&self, faults: &mut Faults, range: RangeInclusive<u64>) -> Option<u64> {
        let parsed = match &self.value.kind {
            Kind::String(text) => units::bytes(text),
            Kind::Int(_) | Kind::Float(_) => Err(units::needs_unit(&self.value.what(), "MiB")),
            _ => return self.wrong(faults, "a size such as 64MiB"),
        };
        let bytes = self.parsed(faults, parsed)?;
        if !range.contains(&bytes) {
            let (least, most) = range.into_inner();
            let [bytes, least, most] = [bytes, least, most].map(units::show_bytes);
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
        if list.is_empty() {
            self.fault(faults, "the list is empty");
            return None;
        }
        Some(list)
    }

    /// The keys of a map, in order, with what stands under them.
    pub(super) fn pairs(&self, faults: &mut Faults) -> Option<Vec<(&'v Key, At<'v>)>> {
        let Kind::Map(pairs) = &self.value.kind else {
            return self.wrong(faults, "a map");
        };
        let pairs = pairs.iter().map(|(key, value)| (key, self.under(key, value)));
        Some(pairs.collect())
    }

    /// A map whose keys are known.
    pub(super) fn fields(&self, faults: &mut Faults) -> Option<Fields<'v>> {
        Some(Fields {
            place: self.place,
            path: self.path.clone(),
            pairs: self.pairs(faults)?,
            known: Vec::new(),
        })
    }
}

/// A map while its fields are taken out. What nobody asks for is a fault at the end.
pub(super) struct Fields<'v> {
    path: Path<'v>,
    place: Option<Place>,
    pairs: Vec<(&'v Key, At<'v>)>,
    known: Vec<&'static str>,
}

impl<'v> Fields<'v> {
    /// What stands under a key. A key with nothing under it is a fault: it was meant to say something.
    pub(super) fn take(&mut self, name: &'static str, faults: &mut Faults) -> Option<At<'v>> {
        let at = self.take_any(name)?;
        if at.value.kind == Kind::Null {
            at.fault_mend(
                faults,
                "nothing is written here",
                "write the value, or leave the key out",
            );
            return None;
        }
        Some(at)
    }

    /// What stands under a key, unless that is nothing.
    pub(super) fn take_said(&mut self, name: &'static str) -> Option<At<'v>> {
        self.take_any(name).filter(|at| at.value.kind != Kind::Null)
    }

    /// What is wrong with the whole.
    pub(super) fn fault_mend(&self, faults: &mut Faults, problem: String, mend: &str) {
        faults.add(&self.path, self.place, problem, Some(mend.into()));
    }

    /// What stands under a key, also nothing.
    pub(super) fn take_any(&mut self, name: &'static str) -> Option<At<'v>> {
        self.know(name);
        let index = self.pairs.iter().position(|(key, _)| key.text == name)?;
        Some(self.pairs.remove(index).1)
    }

    /// What stands under a key that has to be there.
    pub(super) fn need(&mut self, name: &'static str, faults: &mut Faults) -> Option<At<'v>> {
        if !self.has(name) {
            self.know(name);
            faults.add(&self.path, self.place, format!("`{name}` is missing"), None);
            return None;
        }
        self.take(name, faults)
    }

    fn know(&mut self, name: &'static str) {
        if !self.known.contains(&name) {
            self.known.push(name);
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.pairs.iter().any(|(key, _)| key.text == name)
    }

    /// Every key that is left is one that nobody knows.
    pub(super) fn end(self, faults: &mut Faults) {
        for (key, at) in &self.pairs {
            let mend = suggest::mend(&key.text, &self.known);
            faults.add(&at.path, key.place, "unknown key", mend);
        }
    }
}
