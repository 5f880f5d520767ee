//! Which filters, costs and conditions of the host's can a tree name?

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::fault::{Fault, Faults};
use super::read::{At, Path};
use super::suggest;
use super::tree::{CONDITIONS, COSTS, FILTERS};
use super::value::{Kind, Place, Value};
use crate::schedule::{Condition, Cost, Filter};

type Make<T> = Box<dyn Fn(&Params<'_>) -> Result<T, ParamFault> + Send + Sync>;

/// The names that a host adds to the language of trees. Nothing is registered globally: a registry is handed to whoever
/// reads a config.
///
/// ```
/// use std::sync::Arc;
/// use paddler_core::config::{Kind, Registry, Value, tree_from_value};
/// use paddler_core::schedule::filter_fn;
///
/// struct Price(f64);
/// let mut registry = Registry::new();
/// registry.filter("cheap", |params| {
///     let below = params.number("below")?.ok_or("`below` is missing")?;
///     Ok(Arc::new(filter_fn("cheap", move |cx, upstream| {
///         cx.spec(upstream).extensions.get::<Price>().is_none_or(|price| price.0 < below)
///     })))
/// })?;
///
/// let json = serde_json::json!({"tree": [{"prefer": {"cheap": {"below": 0.5}}}, {"pick": "random"}]});
/// let tree = tree_from_value(&Value::from_json(&json).unwrap(), "tree.json", &registry).unwrap();
/// assert_eq!(tree.node_count(), 3);
/// # Ok::<(), paddler_core::config::NameTaken>(())
/// ```
#[derive(Default)]
pub struct Registry {
    filters: BTreeMap<String, Make<Arc<dyn Filter>>>,
    costs: BTreeMap<String, Make<Arc<dyn Cost>>>,
    conditions: BTreeMap<String, Make<Condition>>,
}

/// The name that was to be registered means something already.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameTaken(String);

impl fmt::Display for NameTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is built in or registered already", self.0)
    }
}

impl std::error::Error for NameTaken {}

impl Registry {
    /// The names that are built in, and no others.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a filter.
    ///
    /// # Errors
    /// When a filter of that name is there already.
    pub fn filter(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(&Params<'_>) -> Result<Arc<dyn Filter>, ParamFault> + Send + Sync + 'static,
    ) -> Result<&mut Self, NameTaken> {
        add(&mut self.filters, FILTERS, name.into(), Box::new(make))?;
        Ok(self)
    }

    /// Adds a cost.
    ///
    /// # Errors
    /// When a cost of that name is there already.
    pub fn cost(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(&Params<'_>) -> Result<Arc<dyn Cost>, ParamFault> + Send + Sync + 'static,
    ) -> Result<&mut Self, NameTaken> {
        add(&mut self.costs, COSTS, name.into(), Box::new(make))?;
        Ok(self)
    }

    /// Adds a condition on the request.
    ///
    /// # Errors
    /// When a condition of that name is there already.
    pub fn condition(
        &mut self,
        name: impl Into<String>,
        make: impl Fn(&Params<'_>) -> Result<Condition, ParamFault> + Send + Sync + 'static,
    ) -> Result<&mut Self, NameTaken> {
        add(&mut self.conditions, CONDITIONS, name.into(), Box::new(make))?;
        Ok(self)
    }

    /// Whether nothing has this name yet, built in or added.
    ///
    /// ```
    /// use paddler_core::config::Registry;
    ///
    /// let registry = Registry::new();
    /// assert!(registry.is_free("cheapest") && !registry.is_free("healthy"));
    /// ```
    pub fn is_free(&self, name: &str) -> bool {
        let built_in = [FILTERS, COSTS, CONDITIONS];
        !built_in.iter().any(|names| names.contains(&name))
            && !self.filters.contains_key(name)
            && !self.costs.contains_key(name)
            && !self.conditions.contains_key(name)
    }

    pub(super) fn filters(&self) -> &BTreeMap<String, Make<Arc<dyn Filter>>> {
        &self.filters
    }

    pub(super) fn costs(&self) -> &BTreeMap<String, Make<Arc<dyn Cost>>> {
        &self.costs
    }

    pub(super) fn conditions(&self) -> &BTreeMap<String, Make<Condition>> {
        &self.conditions
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("filters", &self.filters.keys())
            .field("costs", &self.costs.keys())
            .field("conditions", &self.conditions.keys())
            .finish()
    }
}

fn add<T>(
    names: &mut BTreeMap<String, Make<T>>,
    built_in: &[&str],
    name: String,
    make: Make<T>,
) -> Result<(), NameTaken> {
    if built_in.contains(&name.as_str()) || names.contains_key(&name) {
        return Err(NameTaken(name));
    }
    names.insert(name, make);
    Ok(())
}

/// What is wrong with the parameters of a registered name. Made of a text with `?` or `into`; those of [`Params`] know
/// their place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParamFault(Option<Fault>, String);

impl From<String> for ParamFault {
    fn from(problem: String) -> Self {
        Self(None, problem)
    }
}

impl From<&str> for ParamFault {
    fn from(problem: &str) -> Self {
        Self(None, problem.into())
    }
}

impl fmt::Display for ParamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(fault) => fault.fmt(f),
            None => f.write_str(&self.1),
        }
    }
}

impl std::error::Error for ParamFault {}

/// What stands under a registered name in the tree. A key that the maker does not ask for is a fault.
pub struct Params<'v> {
    at: Option<At<'v>>,
    asked: RefCell<Asked>,
}

#[derive(Default)]
enum Asked {
    #[default]
    Nothing,
    Keys(BTreeSet<String>),
    All,
}

impl fmt::Debug for Params<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.at.as_ref().map(|at| at.value);
        f.debug_tuple("Params").field(&value).finish()
    }
}

impl<'v> Params<'v> {
    /// All of it, as it stands; `None` where the name stands alone. Who asks for all of it looks at each key, so that
    /// none is a fault any more.
    pub fn value(&self) -> Option<&'v Value> {
        *self.asked.borrow_mut() = Asked::All;
        self.at.as_ref().map(|at| at.value)
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&'v Value> {
        self.at(key).map(|at| at.value)
    }

    /// The finite number under a key, if the key is there.
    ///
    /// # Errors
    /// When something else stands there.
    pub fn number(&self, key: &str) -> Result<Option<f64>, ParamFault> {
        self.read(key, |at, faults| at.number(faults, f64::MIN..=f64::MAX))
    }

    /// The whole number, zero or more, under a key, if the key is there.
    ///
    /// # Errors
    /// When something else stands there.
    pub fn whole(&self, key: &str) -> Result<Option<u64>, ParamFault> {
        self.read(key, |at, faults| at.whole(faults, 0..=i64::MAX))
    }

    /// The text under a key, never empty, if the key is there.
    ///
    /// # Errors
    /// When something else stands there.
    pub fn text(&self, key: &str) -> Result<Option<&'v str>, ParamFault> {
        self.read(key, |at, faults| at.text(faults))
    }

    /// The truth under a key, if the key is there.
    ///
    /// # Errors
    /// When something else stands there.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, ParamFault> {
        self.read(key, |at, faults| at.bool(faults))
    }

    /// The length of time, such as `10s`, under a key, if the key is there.
    ///
    /// # Errors
    /// When something else stands there.
    pub fn duration(&self, key: &str) -> Result<Option<Duration>, ParamFault> {
        self.read(key, |at, faults| {
            at.duration(faults, Duration::ZERO..=Duration::MAX)
        })
    }

    fn at(&self, key: &str) -> Option<At<'v>> {
        match &mut *self.asked.borrow_mut() {
            Asked::All => {}
            Asked::Keys(keys) => {
                keys.insert(key.into());
            }
            nothing => *nothing = Asked::Keys([key.into()].into()),
        }
        let at = self.at.as_ref()?;
        let Kind::Map(pairs) = &at.value.kind else {
            return None;
        };
        let (key, value) = pairs.iter().find(|(other, _)| other.text == key)?;
        Some(at.under(key, value))
    }

    fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&At<'v>, &mut Faults) -> Option<T>,
    ) -> Result<Option<T>, ParamFault> {
        let Some(at) = self.at(key) else {
            return Ok(None);
        };
        let mut faults = Faults::default();
        let value = read(&at, &mut faults);
        match faults.finish("", value) {
            Ok(value) => Ok(Some(value)),
            Err(faults) => {
                let first = faults.faults.into_iter().next();
                let text = first.as_ref().map(ToString::to_string).unwrap_or_default();
                Err(ParamFault(first, text))
            }
        }
    }
}

/// Makes what a registered name stands for.
pub(super) fn make<'v, T>(
    make: &Make<T>,
    (path, place): (&Path<'v>, Option<Place>),
    at: Option<At<'v>>,
    faults: &mut Faults,
) -> Option<T> {
    let params = Params {
        at,
        asked: RefCell::default(),
    };
    let made = match make(&params) {
        Ok(made) => Some(made),
        Err(ParamFault(Some(fault), _)) => {
            faults.push(fault);
            None
        }
        Err(ParamFault(None, problem)) => {
            faults.add(path, place, problem, None);
            None
        }
    };
    // After a failure the maker may not have come to ask for the rest.
    if let (Some(_), Some(at)) = (&made, &params.at) {
        unknown_keys(at, params.asked.into_inner(), faults);
    }
    made
}

fn unknown_keys(at: &At<'_>, asked: Asked, faults: &mut Faults) {
    let asked = match asked {
        Asked::All => return,
        Asked::Keys(keys) => keys,
        Asked::Nothing => BTreeSet::new(),
    };
    let known: Vec<&str> = asked.iter().map(String::as_str).collect();
    for (key, under) in at.pairs(faults).into_iter().flatten() {
        if !asked.contains(&key.text) {
            let mend = suggest::mend(&key.text, &known);
            faults.add(&under.path, key.place, "unknown key", mend);
        }
    }
}
