//! What is meant by the name of a model that is asked for?
//!
//! A rule says it for one name, or for all that begin alike. One step and no more: what a name stands for is not looked up
//! again, so there are no chains and no loops. What may serve a request whose model has no place for it is said there, too: see
//! [`Fallback`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::fallback::{self, Fallback};
use super::{RequestClass, RequestFacts, Task};
use crate::config::ModelTimeouts;
use crate::schedule::{Draw, NodeId};

/// What stands for the rest of a name.
pub(super) const REST: char = '*';

/// Draws of their own: no tree has a node of this number.
const STREAM: NodeId = NodeId(u32::MAX);

/// What is meant by a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ModelRule {
    /// The models that it stands for: one of them for each request, by weight. None: the name itself.
    pub targets: Vec<ModelTarget>,
    /// The models that serve a request when the one that it is for has no place: see [`Fallback`]. Names as upstreams have them, in
    /// the order in which they are asked, at most [`Fallback::MOST`]. A `*` in one, where the rule is for all names that begin
    /// alike, is what comes after that beginning.
    pub fallback: Vec<Arc<str>>,
    /// How long a request waits for a place at its own model, and at each but the last of those that serve it otherwise, before
    /// the next one is asked: up to 1 h. 0: it does not wait. Default: [`Fallback::PATIENCE`].
    pub patience: Option<Duration>,
    /// What is special about requests for it.
    pub settings: ModelSettings,
}

/// What is special about requests for a model. What the rule for the name that is asked for does not say, that for the model that
/// it stands for may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ModelSettings {
    /// Their priority, where neither the client's key nor a trusted peer gives them another than 0: [`RequestFacts::priority`].
    pub priority: Option<i32>,
    /// The longest that they wait for a place, up to 1 h; never longer than the queue has it.
    pub max_wait: Option<Duration>,
    /// Whether answers name the model as it was asked for, and not as the engine calls it. Default: they pass as they came.
    pub rewrite_response: Option<bool>,
    /// How long they may take, where that is different.
    pub timeouts: ModelTimeouts,
}

/// One of the models that a name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ModelTarget {
    /// Its name, as upstreams have it. A `*` in it, where the rule is for all names that begin alike, is what comes after
    /// that beginning.
    pub model: Arc<str>,
    /// Its share of the requests, compared with the others': 0 to 1,000,000. 0: none for now.
    pub weight: u32,
}

impl ModelRule {
    /// The name stands for this model.
    pub fn alias(model: impl Into<Arc<str>>) -> Self {
        Self::weighted([(model, 1)])
    }

    /// The name stands for one of these by weight, drawn once for each request: retries and waits keep it.
    pub fn weighted(targets: impl IntoIterator<Item = (impl Into<Arc<str>>, u32)>) -> Self {
        let target = |(model, weight): (_, u32)| ModelTarget {
            model: Into::into(model),
            weight,
        };
        Self {
            targets: targets.into_iter().map(target).collect(),
            ..Self::default()
        }
    }

    /// These serve a request when what its name stands for has no place.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use paddler_core::request::{ModelRule, ModelRules, RequestFacts};
    ///
    /// let mut rule = ModelRule::default().or_else(["llama-8b", "gpt-4o-mini"]);
    /// rule.patience = Some(Duration::from_secs(2));
    /// let rules = ModelRules::new([("llama-70b", rule)])?;
    ///
    /// let mut facts = RequestFacts::new();
    /// facts.model = Some("llama-70b".into());
    /// let fallback = rules.fallback(&facts).unwrap();
    /// assert_eq!(fallback.models, ["llama-8b".into(), "gpt-4o-mini".into()]);
    /// assert_eq!(fallback.patience, Duration::from_secs(2));
    /// # Ok::<(), Vec<paddler_core::request::ModelRuleFault>>(())
    /// ```
    #[must_use]
    pub fn or_else(mut self, models: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.fallback = models.into_iter().map(Into::into).collect();
        self
    }

    fn total(&self) -> usize {
        self.targets.iter().map(|target| target.weight as usize).sum()
    }

    /// What this request gets; `rest`: what the name has beyond its beginning.
    fn drawn(&self, rest: &str, seed: u64) -> Option<Cow<'_, str>> {
        let mut left = Draw::new(seed, STREAM).below(self.total());
        let target = self.targets.iter().find(|target| {
            let here = left < target.weight as usize;
            left = left.saturating_sub(target.weight as usize);
            here
        })?;
        // `x/*` for `*`, asked as `x/`: no name is no model, and stays what it was.
        Some(target.name(rest)).filter(|name| !name.is_empty())
    }
}

impl ModelTarget {
    fn name(&self, rest: &str) -> Cow<'_, str> {
        filled(&self.model, rest)
    }
}

/// A name in a rule, with the rest of the name that is asked for in the place of its `*`.
fn filled<'n>(name: &'n str, rest: &str) -> Cow<'n, str> {
    if name.contains(REST) {
        Cow::Owned(name.replacen(REST, rest, 1))
    } else {
        Cow::Borrowed(name)
    }
}

/// A rule that cannot stand.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ModelRuleFault {
    /// The name that it is for.
    pub name: Arc<str>,
    /// Which of its targets is meant, from 0, if it is one of them.
    pub target: Option<usize>,
    /// Which of the models that serve it otherwise is meant, from 0, if it is one of them.
    pub fallback: Option<usize>,
    /// What is wrong.
    pub problem: String,
    /// What to do about it.
    pub mend: &'static str,
}

impl fmt::Display for ModelRuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, problem, mend, ..
        } = self;
        write!(f, "the model {name:?}: {problem}; {mend}")
    }
}

impl Error for ModelRuleFault {}

/// What is meant by the names that clients ask for.
///
/// A rule for `gpt-*` is for all names that begin with `gpt-`. The rule for a name itself goes before those, and of those the
/// one with the longest beginning counts. They count whether an upstream has a model of the name or not, so that what is meant
/// does not depend on who is there.
///
/// ```
/// use paddler_core::request::{ModelRule, ModelRules, RequestFacts};
///
/// let rules = ModelRules::new([
///     ("gpt-4o", ModelRule::weighted([("llama-3", 90), ("llama-4", 10)])),
///     ("openai/*", ModelRule::alias("*")),
///     ("gpt-*", ModelRule::alias("llama-3")),
/// ])?;
/// let resolved = |name: &str| {
///     let mut facts = RequestFacts::new();
///     (facts.model, facts.seed) = (Some(name.into()), 7);
///     rules.resolve(&mut facts);
///     (facts.asked, facts.model.unwrap())
/// };
/// assert_eq!(resolved("gpt-3.5"), (Some("gpt-3.5".into()), "llama-3".into()));
/// assert_eq!(resolved("openai/qwen").1, "qwen".into());
/// assert_eq!(resolved("llama-4"), (None, "llama-4".into()));
/// assert_eq!(resolved("gpt-4o"), resolved("gpt-4o"), "the same seed, the same model");
///
/// let faults = ModelRules::new([("*-mini", ModelRule::alias("llama-3"))]).unwrap_err();
/// assert_eq!(
///     faults[0].to_string(),
///     "the model \"*-mini\": `*` stands for the rest of a name; write it at the end"
/// );
/// # Ok::<(), Vec<paddler_core::request::ModelRuleFault>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ModelRules {
    exact: BTreeMap<Arc<str>, ModelRule>,
    /// By their beginnings, the longest first.
    beginnings: Vec<(Arc<str>, ModelRule)>,
}

impl ModelRules {
    /// The most rules. Those for names that begin alike are tried one by one.
    pub const MOST: usize = 1_000;

    /// The most models that one name stands for.
    pub const MOST_TARGETS: usize = 100;

    /// The greatest weight.
    pub const MOST_WEIGHT: u32 = 1_000_000;

    /// These rules, each for a name.
    ///
    /// # Errors
    /// Every rule that cannot stand, in the order in which they come: two for one name, a `*` that is not at the end, a target that is an
    /// alias itself, weights of which none counts, or too much of anything.
    pub fn new<N: Into<Arc<str>>>(
        rules: impl IntoIterator<Item = (N, ModelRule)>,
    ) -> Result<Self, Vec<ModelRuleFault>> {
        let (mut built, mut faults) = (Self::default(), Vec::new());
        let mut all = Vec::new();
        for (name, rule) in rules {
            let name: Arc<str> = name.into();
            all.push(name.clone());
            faults.extend(fallback::faults(&name, &rule));
            let mut fault = |target, problem: String, mend| {
                faults.push(ModelRuleFault {
                    name: name.clone(),
                    target,
                    fallback: None,
                    problem,
                    mend,
                });
            };
            if all.len() == Self::MOST + 1 {
                fault(
                    None,
                    format!("there are more than {} rules", Self::MOST),
                    "use `*`",
                );
            }
            let Some(beginning) = checked_name(&name, &mut |problem, mend| fault(None, problem, mend)) else {
                continue;
            };
            check_targets(&rule, beginning.is_some(), &mut fault);
            if !built.add(&name, beginning, rule) {
                fault(
                    None,
                    "there are two rules for this name".into(),
                    "keep one of them",
                );
            }
        }
        for name in &all {
            faults.extend(built.chained(name));
        }
        built
            .beginnings
            .sort_by_key(|(beginning, _)| usize::MAX - beginning.len());
        let order = |fault: &ModelRuleFault| all.iter().position(|name| *name == fault.name);
        faults.sort_by_key(order);
        if faults.is_empty() { Ok(built) } else { Err(faults) }
    }

    /// `false`: there is one for this name already.
    fn add(&mut self, name: &Arc<str>, beginning: Option<&str>, rule: ModelRule) -> bool {
        match beginning {
            None => match self.exact.entry(name.clone()) {
                Entry::Vacant(free) => {
                    free.insert(rule);
                    true
                }
                Entry::Occupied(_) => false,
            },
            Some(beginning) => {
                let is_new = self.beginnings.iter().all(|(other, _)| **other != *beginning);
                if is_new {
                    self.beginnings.push((beginning.into(), rule));
                }
                is_new
            }
        }
    }

    /// Targets of a rule that stand for something else by a rule of their own: one step is all that is taken.
    fn chained(&self, name: &Arc<str>) -> Vec<ModelRuleFault> {
        let rule = match name.strip_suffix(REST) {
            None => self.exact.get(name),
            Some(beginning) => self.beginning(beginning),
        };
        let targets = rule.map_or(&[][..], |rule| &rule.targets).iter().enumerate();
        let stands_for_others = |target: &ModelTarget| {
            let rule = self.exact.get(&target.model)?;
            rule.targets.iter().find(|other| other.model != target.model)
        };
        let faults = targets.filter_map(|(at, target)| {
            let other = stands_for_others(target)?;
            Some(ModelRuleFault {
                name: name.clone(),
                target: Some(at),
                fallback: None,
                problem: format!("{:?} stands for {:?} itself", target.model, other.model),
                mend: "write what is meant in the end",
            })
        });
        faults.collect()
    }

    fn beginning(&self, beginning: &str) -> Option<&ModelRule> {
        let mut rules = self.beginnings.iter();
        rules
            .find(|(other, _)| **other == *beginning)
            .map(|(_, rule)| rule)
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.beginnings.is_empty()
    }

    /// The rules for names, and then those for all names that begin alike, with their `*`.
    pub fn iter(&self) -> impl Iterator<Item = (Cow<'_, str>, &ModelRule)> {
        let exact = self
            .exact
            .iter()
            .map(|(name, rule)| (Cow::Borrowed(&**name), rule));
        let beginnings = self.beginnings.iter();
        exact.chain(beginnings.map(|(name, rule)| (Cow::Owned(format!("{name}{REST}")), rule)))
    }

    /// The rule for a name, and what the name has beyond its beginning.
    fn rule<'n>(&self, name: &'n str) -> Option<(&ModelRule, &'n str)> {
        if let Some(rule) = self.exact.get(name) {
            return Some((rule, ""));
        }
        let mut beginnings = self.beginnings.iter();
        beginnings.find_map(|(beginning, rule)| Some((rule, name.strip_prefix(&**beginning)?)))
    }

    /// The name that the rule for a name is written for, which leaves so much of it.
    fn written(&self, name: &str, rest: &str) -> Arc<str> {
        if self.exact.contains_key(name) {
            name.into()
        } else {
            format!("{}{REST}", name.strip_suffix(rest).unwrap_or(name)).into()
        }
    }

    /// All models that a request for this name may get by its rule, which may be of its own name. None: it is what it says.
    pub fn targets<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Cow<'a, str>> {
        self.rule(name).into_iter().flat_map(|(rule, rest)| {
            let counted = rule.targets.iter().filter(|target| target.weight > 0);
            counted.map(move |target| target.name(rest))
        })
    }

    /// Who serves a request whose own model has no place for it, by the rule for the name that it asks for, or else by that for the
    /// model that it stands for. `None`: nobody; so it is of all that generates nothing, and of work of a kind that nobody knows, which
    /// may be anything, such as an order to somebody else's API.
    pub fn fallback(&self, facts: &RequestFacts) -> Option<Fallback> {
        if !matches!(facts.class, RequestClass::Generate(task) if task != Task::Other) {
            return None;
        }
        let named = [&facts.asked, &facts.model];
        let mut rules = named
            .into_iter()
            .flatten()
            .filter_map(|name| Some((name, self.rule(name)?)));
        let (name, (rule, rest)) = rules.find(|(_, (rule, _))| !rule.fallback.is_empty())?;
        let names = rule.fallback.iter().map(|name| filled(name, rest));
        let others = names.filter(|name| !name.is_empty() && facts.model.as_deref() != Some(&**name));
        let models: Vec<Arc<str>> = others.map(Into::into).collect();
        (!models.is_empty()).then(|| Fallback {
            models,
            patience: rule.patience.unwrap_or(Fallback::PATIENCE),
            rule: self.written(name, rest),
        })
    }

    /// Whether any rule has a [`Fallback`]: then who is only fallen back to serves somebody.
    pub fn falls_back(&self) -> bool {
        self.iter().any(|(_, rule)| !rule.fallback.is_empty())
    }

    /// The names that stand for others, without those for all names that begin alike: what a list of models can hold.
    pub fn aliases(&self) -> impl Iterator<Item = &Arc<str>> {
        let stands_for_others = |name: &str| self.targets(name).any(|target| *target != *name);
        self.exact.keys().filter(move |name| stands_for_others(name))
    }

    /// Puts the model that is meant in the place of the name that is asked for, drawn from the seed of the facts, and gives a request
    /// of priority 0 that of its model. A request that names none stays as it is, and so does one that was resolved before.
    pub fn resolve(&self, facts: &mut RequestFacts) {
        let (Some(name), None) = (&facts.model, &facts.asked) else {
            return;
        };
        let rule = self.rule(name);
        let target = rule.and_then(|(rule, rest)| rule.drawn(rest, facts.seed));
        if let Some(target) = target.filter(|target| *target != **name) {
            facts.asked = facts.model.replace(target.into());
        }
        if facts.priority == 0 {
            facts.priority = self.settings(facts).priority.unwrap_or_default();
        }
    }

    /// What is special about a request, by the name that it asks for and the model that that stands for.
    pub fn settings(&self, facts: &RequestFacts) -> ModelSettings {
        if self.is_empty() {
            return ModelSettings::default();
        }
        let of = |name: &Option<Arc<str>>| {
            let rule = name.as_deref().and_then(|name| self.rule(name));
            rule.map(|(rule, _)| rule.settings).unwrap_or_default()
        };
        let (asked, model) = (of(&facts.asked), of(&facts.model));
        ModelSettings {
            priority: asked.priority.or(model.priority),
            max_wait: asked.max_wait.or(model.max_wait),
            rewrite_response: asked.rewrite_response.or(model.rewrite_response),
            timeouts: ModelTimeouts {
                first_byte: asked.timeouts.first_byte.or(model.timeouts.first_byte),
                idle: asked.timeouts.idle.or(model.timeouts.idle),
                whole: asked.timeouts.whole.or(model.timeouts.whole),
            },
        }
    }
}

/// What the name begins with if it is for all that begin alike; `None`: it is no name.
fn checked_name<'n>(name: &'n str, fault: &mut dyn FnMut(String, &'static str)) -> Option<Option<&'n str>> {
    if !is_name(name) {
        fault(
            "this is not the name of a model".into(),
            "write 1 to 1,024 bytes without control characters",
        );
        return None;
    }
    let beginning = name.strip_suffix(REST);
    if beginning.unwrap_or(name).contains(REST) {
        fault("`*` stands for the rest of a name".into(), "write it at the end");
        return None;
    }
    Some(beginning)
}

pub(super) fn is_name(name: &str) -> bool {
    (1..=1_024).contains(&name.len()) && !name.contains(char::is_control)
}

fn check_targets(
    rule: &ModelRule,
    has_rest: bool,
    fault: &mut dyn FnMut(Option<usize>, String, &'static str),
) {
    let targets = &rule.targets;
    if targets.len() > ModelRules::MOST_TARGETS {
        let problem = format!("it stands for more than {} models", ModelRules::MOST_TARGETS);
        fault(None, problem, "leave some out");
        return;
    }
    for (at, ModelTarget { model, weight }) in targets.iter().enumerate() {
        if !is_name(model) {
            let mend = "write 1 to 1,024 bytes without control characters";
            fault(Some(at), format!("{model:?} is not the name of a model"), mend);
        }
        if model.matches(REST).count() > usize::from(has_rest) {
            let problem = "`*` in a target is the rest of a name that ends in `*`, once";
            fault(Some(at), problem.into(), "write the name of a model");
        }
        if *weight > ModelRules::MOST_WEIGHT {
            let problem = format!("the weight {weight} is out of range: 0 to 1000000");
            fault(Some(at), problem, "only their proportion counts");
        }
        if targets[..at].iter().any(|other| other.model == *model) {
            let problem = format!("{model:?} is one of its targets twice");
            fault(Some(at), problem, "keep one of them");
        }
    }
    if !targets.is_empty() && rule.total() == 0 {
        fault(
            None,
            "no target has a weight above 0".into(),
            "give one of them a weight",
        );
    }
}

#[cfg(test)]
mod tests;
