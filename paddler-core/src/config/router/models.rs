//! What is meant by the names of models that clients ask for, and what is special about each?

use std::collections::HashMap;
use std::time::Duration;

use super::fill::{HOUR, step};
use super::timeouts::ModelTimeouts;
use crate::config::fault::{ConfigFaults, Faults};
use crate::config::read::{At, Fields};
use crate::config::value::{Kind, Value, quoted};
use crate::queue::Priority;
use crate::request::{ModelRule, ModelRules, ModelTarget};

impl ModelRules {
    /// Reads rules for names, in the words of a config's `models`. `name` is that of the file, for the faults.
    ///
    /// ```
    /// use paddler_core::config::Value;
    /// use paddler_core::request::ModelRules;
    ///
    /// let read = |json| ModelRules::from_value(&Value::from_json(&json).unwrap(), "");
    /// let rules = read(serde_json::json!({"gpt-4o": "llama-3", "gpt-*": {"target": "small", "max_wait": "2s"}})).unwrap();
    /// assert_eq!(rules.targets("gpt-5").collect::<Vec<_>>(), ["small"]);
    ///
    /// let faults = read(serde_json::json!({"*-mini": "small", "chat": {"priorty": 1}})).unwrap_err();
    /// assert_eq!(faults.faults[0].to_string(), "chat.priorty: unknown key; did you mean \"priority\"?");
    /// assert_eq!(faults.faults.len(), 2);
    /// ```
    ///
    /// # Errors
    /// Every fault at once, each with its path and, where the value has places, its place.
    pub fn from_value(value: &Value, name: &str) -> Result<Self, ConfigFaults> {
        let (mut rules, mut faults) = (Rules::default(), Faults::default());
        rules.models(&At::root(value), &mut faults);
        let rules = rules.build(Self::default(), &mut faults);
        faults.finish(name, Some(rules))
    }
}

/// The rules as they are written, with their places.
#[derive(Default)]
pub(super) struct Rules<'v> {
    rules: Vec<(&'v str, ModelRule)>,
    places: HashMap<&'v str, Place<'v>>,
    /// The rules before do not count any more.
    anew: bool,
}

/// Where a rule stands, and each of its targets.
struct Place<'v> {
    at: At<'v>,
    targets: Vec<At<'v>>,
}

impl<'v> Rules<'v> {
    /// The section `models`.
    pub(super) fn models(&mut self, at: &At<'v>, faults: &mut Faults) {
        for (name, at) in at.pairs(faults).into_iter().flatten() {
            let mut targets = Vec::new();
            let rule = rule(&at, &mut targets, faults);
            self.places.insert(&name.text, Place { at, targets });
            self.rules.extend(rule.map(|rule| (name.text.as_str(), rule)));
        }
        self.anew = true;
    }

    /// The same of `timeouts.models`, where times alone are said.
    pub(super) fn timeouts(&mut self, at: &At<'v>, faults: &mut Faults) {
        for (name, at) in at.pairs(faults).into_iter().flatten() {
            let Some(timeouts) = timeouts(&at, faults) else {
                continue;
            };
            let name = name.text.as_str();
            let known = self.rules.iter_mut().find(|(other, _)| *other == name);
            match known.map(|(_, rule)| &mut rule.settings.timeouts) {
                Some(said) if *said == ModelTimeouts::default() => *said = timeouts,
                Some(_) => {
                    let problem = format!("the timeouts of {} stand under `models` too", quoted(name));
                    at.fault_mend(faults, problem, "keep those there");
                }
                None => {
                    let mut rule = ModelRule::default();
                    rule.settings.timeouts = timeouts;
                    self.rules.push((name, rule));
                    self.places.entry(name).or_insert(Place {
                        at,
                        targets: Vec::new(),
                    });
                }
            }
        }
    }

    /// All of them; where `models` is not written, over those before.
    pub(super) fn build(self, before: ModelRules, faults: &mut Faults) -> ModelRules {
        if self.rules.is_empty() && !self.anew {
            return before;
        }
        let stays = |name: &str| !self.anew && !self.places.contains_key(name);
        let before = before.iter().filter(|(name, _)| stays(name));
        let before = before.map(|(name, rule)| (name.into_owned(), rule.clone()));
        let said = self
            .rules
            .iter()
            .map(|(name, rule)| ((*name).to_owned(), rule.clone()));
        let wrong = match ModelRules::new(before.chain(said)) {
            Ok(rules) => return rules,
            Err(wrong) => wrong,
        };
        for fault in wrong {
            if let Some(place) = self.places.get(&*fault.name) {
                let target = fault.target.and_then(|target| place.targets.get(target));
                let at = target.unwrap_or(&place.at);
                at.fault_mend(faults, fault.problem, fault.mend);
            }
        }
        ModelRules::default()
    }
}

/// A name, or a map with more.
fn rule<'v>(at: &At<'v>, targets: &mut Vec<At<'v>>, faults: &mut Faults) -> Option<ModelRule> {
    if faults.notes() {
        at.text(faults);
    } else if let Kind::String(_) = &at.value.kind {
        targets.push(at.clone());
        return at.text(faults).map(ModelRule::alias);
    }
    if !matches!(at.value.kind, Kind::Map(_)) && !faults.notes() {
        return at.wrong(faults, "the name of a model, or a map that says what is meant");
    }
    let mut fields = at.fields(faults)?;
    let mut rule = ModelRule::default();
    let stands_for = stands_for(&mut fields, targets, faults);
    let settings = &mut rule.settings;
    settings.priority = fields
        .take("priority", faults)
        .and_then(|at| priority(&at, faults));
    let max_wait = fields.take("max_wait", faults);
    settings.max_wait = max_wait.and_then(|at| at.duration(faults, Duration::ZERO..=HOUR));
    let rewrite = fields.take("rewrite_response", faults);
    settings.rewrite_response = rewrite.and_then(|at| at.bool(faults));
    let times = fields
        .take("timeouts", faults)
        .and_then(|at| timeouts(&at, faults));
    settings.timeouts = times.unwrap_or_default();
    fields.end(faults);
    rule.targets = stands_for?;
    Some(rule)
}

/// `target`, or `targets` with their weights.
fn stands_for<'v>(
    fields: &mut Fields<'v>,
    places: &mut Vec<At<'v>>,
    faults: &mut Faults,
) -> Option<Vec<ModelTarget>> {
    let (one, many) = (fields.take("target", faults), fields.take("targets", faults));
    if faults.notes() {
        if let Some(at) = one {
            at.text(faults);
        }
        for at in many.and_then(|at| at.some_list(faults)).into_iter().flatten() {
            target(&at, faults);
        }
        return None;
    }
    match (one, many) {
        (None, None) => Some(Vec::new()),
        (Some(at), None) => {
            let rule = ModelRule::alias(at.text(faults)?);
            places.push(at);
            Some(rule.targets)
        }
        (None, Some(at)) => {
            let list = at.some_list(faults)?;
            let targets: Vec<_> = list.iter().map(|at| target(at, faults)).collect();
            places.extend(list);
            let targets: Option<Vec<_>> = targets.into_iter().collect();
            Some(ModelRule::weighted(targets?).targets)
        }
        (Some(_), Some(at)) => {
            at.fault_mend(
                faults,
                "`target` and `targets` stand here both",
                "keep one of them",
            );
            None
        }
    }
}

/// One of several, with its weight.
fn target<'v>(at: &At<'v>, faults: &mut Faults) -> Option<(&'v str, u32)> {
    let mut fields = at.fields(faults)?;
    let model = fields.need("model", faults).and_then(|at| at.text(faults));
    let weight = fields.need("weight", faults);
    let weight = weight.and_then(|at| at.whole(faults, 0..=i64::from(ModelRules::MOST_WEIGHT)));
    fields.end(faults);
    Some((model?, weight?))
}

/// A word or a number.
fn priority(at: &At<'_>, faults: &mut Faults) -> Option<i32> {
    let words = Priority::ALL.map(|class| (class.as_str(), class));
    match &at.value.kind {
        Kind::String(word) => at.word(faults, &words).and_then(|_| Priority::read(word)),
        _ => {
            words.iter().for_each(|(word, _)| at.takes_word(faults, word));
            at.whole(faults, -1000..=1000)
        }
    }
}

fn timeouts(at: &At<'_>, faults: &mut Faults) -> Option<ModelTimeouts> {
    let mut fields = at.fields(faults)?;
    let timeouts = ModelTimeouts {
        first_byte: step(&mut fields, "first_byte", faults),
        idle: step(&mut fields, "idle", faults),
        whole: step(&mut fields, "whole", faults),
    };
    fields.end(faults);
    Some(timeouts)
}
