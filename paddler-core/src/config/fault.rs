//! What is wrong with a config, where, and how is it mended?

use std::fmt;

use serde::Serialize;

use super::read::Path;
use super::schema::{Shapes, Slot};
use super::value::Place;

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// Which part of the config: `tree[2].then.branch.queue_depth.below`. Empty for the whole.
    pub path: String,
    /// Where in the text, if it came from a text.
    pub place: Option<Place>,
    /// What is wrong.
    pub problem: String,
    /// What to do about it, where that can be said.
    pub mend: Option<String>,
}

impl Fault {
    /// A fault of which nobody can say how to mend it.
    pub fn new(path: impl Into<String>, place: Option<Place>, problem: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            place,
            problem: problem.into(),
            mend: None,
        }
    }

    /// Says how to mend it.
    #[must_use]
    pub fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.problem)?;
        match &self.mend {
            Some(mend) => write!(f, "; {mend}"),
            None => Ok(()),
        }
    }
}

/// All that is wrong with a config, in the order of the text; never empty. Shown with one line for each fault:
///
/// ```text
/// paddler.yaml:12:7: tree[2].require: "helthy" is not a filter; did you mean "healthy"?
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct ConfigFaults {
    /// The name of the file, or of whatever it was; empty if it has none.
    pub name: String,
    /// The faults; at most [`MOST`](Self::MOST).
    pub faults: Vec<Fault>,
    /// How many there were beyond those.
    pub more: usize,
}

impl ConfigFaults {
    /// How many faults are kept; a file that has more is not a config.
    pub const MOST: usize = 1000;

    pub(super) fn one(fault: Fault) -> Self {
        Self {
            name: String::new(),
            faults: vec![fault],
            more: 0,
        }
    }
}

impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match (self.name.as_str(), fault.place) {
                ("", None) => write!(f, "{fault}")?,
                ("", Some(place)) => write!(f, "{place}: {fault}")?,
                (name, None) => write!(f, "{name}: {fault}")?,
                (name, Some(place)) => write!(f, "{name}:{place}: {fault}")?,
            }
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}

/// Where faults are collected while reading goes on.
#[derive(Debug, Default)]
pub(super) struct Faults {
    faults: Vec<Fault>,
    more: usize,
    /// What readers take, where that is what they are asked.
    shapes: Option<Box<Shapes>>,
}

impl Faults {
    /// For readers that are asked what they take; no fault is meant then.
    pub(super) fn noting() -> Self {
        Self {
            shapes: Some(Box::default()),
            ..Self::default()
        }
    }

    /// Whether readers are asked what they take, and not what stands there.
    pub(super) fn notes(&self) -> bool {
        self.shapes.is_some()
    }

    pub(super) fn shapes(&mut self) -> Option<&mut Shapes> {
        self.shapes.as_deref_mut()
    }

    /// Where it is noted what a reader takes at this path, if that is asked.
    pub(super) fn slot(&mut self, path: &Path<'_>) -> Option<&mut Slot> {
        self.shapes().map(|shapes| shapes.at(path))
    }

    pub(super) fn into_shapes(self) -> Shapes {
        self.shapes.map(|shapes| *shapes).unwrap_or_default()
    }

    pub(super) fn push(&mut self, mut fault: Fault) {
        if self.notes() {
            return;
        }
        fault.problem = flat(&fault.problem);
        fault.mend = fault.mend.as_deref().map(flat);
        if self.faults.len() < ConfigFaults::MOST {
            self.faults.push(fault);
        } else {
            self.more += 1;
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.faults.len() + self.more
    }

    /// Adds a fault at a path, which is written out only while there is room.
    pub(super) fn add(
        &mut self,
        path: &Path<'_>,
        place: Option<Place>,
        problem: impl Into<String>,
        mend: Option<String>,
    ) {
        if self.notes() {
            return;
        }
        if self.faults.len() < ConfigFaults::MOST {
            let fault = Fault::new(path.to_string(), place, problem);
            self.push(Fault { mend, ..fault });
        } else {
            self.more += 1;
        }
    }

    /// The value if nothing was wrong, else all that was.
    pub(super) fn finish<T>(mut self, name: &str, value: Option<T>) -> Result<T, ConfigFaults> {
        match value {
            Some(value) if self.faults.is_empty() => Ok(value),
            _ => {
                if self.faults.is_empty() {
                    // No reader gives up without a fault; were one to, an empty list would tell nothing.
                    self.push(Fault::new("", None, "cannot be read"));
                }
                // Stable: faults at one place stay in the order in which they were found; those without a place come last.
                self.faults
                    .sort_by_key(|fault| (fault.place.is_none(), fault.place));
                Err(ConfigFaults {
                    name: name.into(),
                    faults: self.faults,
                    more: self.more,
                })
            }
        }
    }
}

/// On one line: what is quoted of the text, or said by a host, must not break it.
fn flat(text: &str) -> String {
    text.replace(char::is_control, " ")
}
