//! Who could serve in whose place?
//!
//! Requests ask for models, so what matters is who else serves the same ones: under each name (a model, an alias, an
//! adapter) those that list it, with those that answer for any. Who has told no name is held against all: where nobody
//! tells models, the pool is one group.
//!
//! Who gets only [some requests](Traffic) stands in for nobody whose requests do not reach it: one that is fallen back to for those
//! alike, and one that wants a model named for nobody whom requests without a model reach.
//!
//! The counts follow each change, so that a fault costs its upstream's own names, however large the pool is.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::upstream::{Models, Traffic};

/// What an upstream can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Serves {
    pub(super) what: What,
    /// By which requests.
    pub(super) traffic: Traffic,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum What {
    /// It has told no name, so it is held against all.
    #[default]
    Untold,
    /// Any name, listed by somebody or not.
    Any,
    /// These, each once, and at least one.
    Names(Arc<[Arc<str>]>),
}

impl Serves {
    /// `None`: it has not told its models.
    pub(crate) fn of(models: Option<&Models>, traffic: Traffic) -> Self {
        let what = What::of(models);
        Self { what, traffic }
    }

    /// Whether the requests that reach this one reach the other as well.
    pub(super) fn reach(&self, other: &Self) -> bool {
        let least = match self.what {
            What::Untold => self.traffic,
            // They name what it lists.
            What::Any | What::Names(_) => self.traffic.max(Traffic::Named),
        };
        other.traffic <= least
    }
}

impl What {
    /// Whoever lists none may yet: it is as if it had not told.
    fn of(models: Option<&Models>) -> Self {
        let listed = match models {
            Some(Models::Any) => return Self::Any,
            Some(Models::Listed(listed)) => &listed[..],
            None => return Self::Untold,
        };
        let names = listed
            .iter()
            .flat_map(|model| [&model.id].into_iter().chain(&model.aliases));
        let names: BTreeSet<_> = names.cloned().collect();
        if names.is_empty() {
            return Self::Untold;
        }
        Self::Names(names.into_iter().collect())
    }
}

/// What an upstream is to those who could be served by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing: by its own word or the operator's it gets no work.
    Unusable,
    In,
    /// It could serve, and is out for its faults.
    Out,
}

/// How many could serve, and how many of them are out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    pub(super) usable: u32,
    pub(super) out: u32,
}

impl Count {
    pub(super) fn inside(self) -> u32 {
        self.usable.saturating_sub(self.out)
    }

    fn and(self, other: Self) -> Self {
        Self {
            usable: self.usable + other.usable,
            out: self.out + other.out,
        }
    }

    fn count(&mut self, standing: Standing, by: impl Fn(u32) -> u32) {
        match standing {
            Standing::Unusable => return,
            Standing::Out => self.out = by(self.out),
            Standing::In => {}
        }
        self.usable = by(self.usable);
    }

    /// Returns whether that was the last who was in, or is the first.
    fn change(&mut self, from: Standing, to: Standing) -> bool {
        let before = self.inside();
        self.count(from, |count| count.saturating_sub(1));
        self.count(to, |count| count + 1);
        (before == 0) != (self.inside() == 0)
    }
}

/// How many of each [`Traffic`], from [`All`](Traffic::All) on.
#[derive(Debug, Clone, Copy, Default)]
struct Counts([Count; 3]);

impl Counts {
    /// Returns whether that was the last who was in of those with this traffic, or is the first.
    fn change(&mut self, traffic: Traffic, from: Standing, to: Standing) -> bool {
        self.0[traffic as usize].change(from, to)
    }

    /// Those whom the same requests reach as one with this traffic.
    fn reached(&self, traffic: Traffic) -> Count {
        let counts = self.0[..=traffic as usize].iter();
        counts.fold(Count::default(), |all, count| all.and(*count))
    }

    /// The same, where requests name a model.
    fn named(&self, traffic: Traffic) -> Count {
        self.reached(traffic.max(Traffic::Named))
    }
}

#[derive(Debug, Default)]
struct Group {
    counts: Counts,
    places: Vec<u32>,
}

/// For whom somebody has become the only one who could serve, or is it no more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flipped {
    /// For none, or those at these places.
    At(Vec<u32>),
    /// For anybody.
    Any,
}

/// Who could serve what.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Counts,
    any: Group,
    names: HashMap<Arc<str>, Group>,
}

impl Groups {
    pub(super) fn join(&mut self, place: u32, serves: &Serves) {
        match &serves.what {
            What::Untold => {}
            What::Any => self.any.places.push(place),
            What::Names(names) => {
                for name in &**names {
                    self.names.entry(name.clone()).or_default().places.push(place);
                }
            }
        }
    }

    /// It must be unusable by now.
    pub(super) fn leave(&mut self, place: u32, serves: &Serves) {
        let forget = |group: &mut Group| group.places.retain(|one| *one != place);
        match &serves.what {
            What::Untold => {}
            What::Any => forget(&mut self.any),
            What::Names(names) => {
                for name in &**names {
                    let Some(group) = self.names.get_mut(name) else {
                        continue;
                    };
                    forget(group);
                    if group.places.is_empty() {
                        self.names.remove(name);
                    }
                }
            }
        }
    }

    pub(super) fn change(&mut self, serves: &Serves, from: Standing, to: Standing) -> Flipped {
        let mut anybody = self.all.change(serves.traffic, from, to);
        let mut places = Vec::new();
        match &serves.what {
            What::Untold => {}
            What::Any => anybody |= self.any.counts.change(serves.traffic, from, to),
            What::Names(names) => {
                for name in &**names {
                    if let Some(group) = self.names.get_mut(name)
                        && group.counts.change(serves.traffic, from, to)
                    {
                        places.extend_from_slice(&group.places);
                    }
                }
            }
        }
        if anybody {
            Flipped::Any
        } else {
            Flipped::At(places)
        }
    }

    /// Whether somebody could be served by nobody who is in: such a request would be refused without who serves this.
    pub(super) fn lacks_any_of(&self, serves: &Serves) -> bool {
        let empty = |count: Count| count.inside() == 0;
        empty(self.all.reached(serves.traffic))
            || empty(self.any.counts.named(serves.traffic))
                && match &serves.what {
                    What::Untold => false,
                    What::Any => true,
                    What::Names(names) => names.iter().any(|name| empty(self.count(name, serves.traffic))),
                }
    }

    /// Those who list the name, without those who answer for any.
    fn count(&self, name: &str, traffic: Traffic) -> Count {
        let group = self.names.get(name);
        group.map(|group| group.counts.named(traffic)).unwrap_or_default()
    }

    /// Whether this holds for each of the groups that one who serves this is in.
    pub(super) fn each(&self, serves: &Serves, mut holds: impl FnMut(Count) -> bool) -> bool {
        let traffic = serves.traffic;
        let any = self.any.counts.named(traffic);
        match &serves.what {
            What::Any => {
                let mut groups = self.names.values();
                holds(any) && groups.all(|group| holds(group.counts.named(traffic).and(any)))
            }
            What::Untold => holds(self.all.reached(traffic)),
            What::Names(names) => names.iter().all(|name| holds(self.count(name, traffic).and(any))),
        }
    }

    /// Whether such a one can be found for each name that one who serves this can be asked for. `None`: he can be asked
    /// for none, and all are as good.
    pub(super) fn each_has(&self, serves: &Serves, found: impl Fn(u32) -> bool) -> Option<bool> {
        let found_in = |group: &Group| group.places.iter().any(|place| found(*place));
        match &serves.what {
            What::Any => Some(found_in(&self.any)),
            What::Untold => None,
            What::Names(names) => {
                let covered = |name: &Arc<str>| self.names.get(name).is_some_and(found_in);
                Some(found_in(&self.any) || names.iter().all(covered))
            }
        }
    }
}
