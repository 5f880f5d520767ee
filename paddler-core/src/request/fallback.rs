//! Who serves a request when the model that it is for has no place?

use std::sync::Arc;
use std::time::Duration;

use super::models::{ModelRule, ModelRuleFault, REST, is_name};

/// The models that serve a request when its own has no place for it, as [`ModelRules::fallback`](super::ModelRules::fallback) says.
///
/// The request waits for its own for as long as its patience is, then for each of these in order, and no longer than a
/// request may wait in all. What nobody could serve now, however long it waited, is not waited for: the next one is asked at
/// once where nobody has a model, nobody who has it is able, or as many wait as may. So it is too where an upstream has refused or
/// lost the request, which may be sent again, and nobody else has the model.
///
/// Whoever may ask for its own model may be served by these: a client's list of models is about the name that he asks for. Its
/// times ([`ModelSettings::timeouts`](super::ModelSettings::timeouts)), too, stay those of its own model.
///
/// When all were asked, the request waits for what is left of its time at the last one whose upstreams are merely busy; if there is
/// none, at its own.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fallback {
    /// Their names, as upstreams have them, in order; not that of the model that the request is for.
    pub models: Vec<Arc<str>>,
    /// How long a request waits before the next one is asked.
    pub patience: Duration,
    /// The name that the rule is for which says so, as it is written.
    pub rule: Arc<str>,
}

impl Fallback {
    /// The most models that one name falls back to. Each may be asked, and waited for, by every request.
    pub const MOST: usize = 8;

    /// The patience where nothing is said: 5 s. Most answers end sooner, so a place of one's own model is likely by then, and
    /// nobody has left yet.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// The longest patience: 1 h.
    pub const MOST_PATIENCE: Duration = Duration::from_secs(3_600);
}

/// What is wrong with what a rule for this name says of it.
pub(super) fn faults(name: &Arc<str>, rule: &ModelRule) -> Vec<ModelRuleFault> {
    let (models, has_rest) = (&rule.fallback, name.ends_with(REST));
    let mut faults = Vec::new();
    let mut fault = |fallback, problem, mend| {
        faults.push(ModelRuleFault {
            name: name.clone(),
            target: None,
            fallback,
            problem,
            mend,
        });
    };
    if models.len() > Fallback::MOST {
        let problem = format!("it falls back to more than {} models", Fallback::MOST);
        fault(None, problem, "leave some out");
        return faults;
    }
    for (at, model) in models.iter().enumerate() {
        if !is_name(model) {
            let mend = "write 1 to 1,024 bytes without control characters";
            fault(Some(at), format!("{model:?} is not the name of a model"), mend);
        }
        if model.matches(REST).count() > usize::from(has_rest) {
            let problem = "`*` in a fallback is the rest of a name that ends in `*`, once";
            fault(Some(at), problem.into(), "write the name of a model");
        }
        if is_itself(name, rule, model) {
            let mend = "it was asked already: leave it out";
            fault(Some(at), format!("it falls back to {model:?} itself"), mend);
        }
        if models[..at].contains(model) {
            let problem = format!("it falls back to {model:?} twice");
            fault(Some(at), problem, "keep one of them");
        }
    }
    if rule
        .patience
        .is_some_and(|patience| patience > Fallback::MOST_PATIENCE)
    {
        fault(None, "the patience is longer than 1 h".into(), "write less");
    }
    faults
}

/// Whether a request for this name has asked this model before it asks any other. A name that stands for others may well fall back
/// to what upstreams call so themselves.
fn is_itself(name: &str, rule: &ModelRule, model: &str) -> bool {
    match &rule.targets[..] {
        [] => *name == *model,
        [one] => *one.model == *model,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{ModelRules, RequestFacts};

    fn chain(rules: &ModelRules, name: &str) -> Vec<String> {
        let mut facts = RequestFacts::new();
        facts.model = Some(name.into());
        rules.resolve(&mut facts);
        let fallback = rules.fallback(&facts);
        let models = fallback.into_iter().flat_map(|fallback| fallback.models);
        models.map(|model| model.to_string()).collect()
    }

    #[test]
    fn the_name_that_is_asked_for_says_it_or_else_what_it_stands_for() {
        let rules = ModelRules::new([
            ("big", ModelRule::default().or_else(["small", "hosted"])),
            ("any", ModelRule::alias("big")),
            ("gpt-4o", ModelRule::alias("big").or_else(["gpt-4o"])),
            (
                "either",
                ModelRule::weighted([("big", 1), ("small", 0)]).or_else(["big", "small"]),
            ),
            ("at/*", ModelRule::alias("*").or_else(["hosted/*", "*-mini"])),
            ("*", ModelRule::default().or_else(["small"])),
        ])
        .unwrap();
        for (name, expected) in [
            ("big", &["small", "hosted"][..]),
            ("any", &["small", "hosted"]),
            ("gpt-4o", &["gpt-4o"]),
            ("either", &["small"]),
            ("at/x", &["hosted/x", "x-mini"]),
            ("other", &["small"]),
            ("small", &[]),
        ] {
            assert_eq!(chain(&rules, name), expected, "{name}");
        }
        let none = RequestFacts::new();
        assert_eq!(
            rules.fallback(&none),
            None,
            "a request without a model may go anywhere already"
        );
    }

    #[test]
    fn each_fault_is_told_with_what_mends_it() {
        let many = (0..=Fallback::MOST).map(|number| number.to_string());
        let mut patient = ModelRule::default().or_else(["b"]);
        patient.patience = Some(Duration::from_secs(3_601));
        for (name, rule, expected) in [
            (
                "a",
                ModelRule::default().or_else(["a"]),
                "it falls back to \"a\" itself; it was asked already: leave it out",
            ),
            (
                "a",
                ModelRule::alias("b").or_else(["b"]),
                "it falls back to \"b\" itself; it was asked already: leave it out",
            ),
            (
                "a",
                ModelRule::default().or_else(["b", "b"]),
                "it falls back to \"b\" twice; keep one of them",
            ),
            (
                "a",
                ModelRule::default().or_else(["b*"]),
                "`*` in a fallback is the rest of a name that ends in `*`, once; write the name of a model",
            ),
            (
                "a",
                ModelRule::default().or_else([""]),
                "\"\" is not the name of a model; write 1 to 1,024 bytes without control characters",
            ),
            (
                "a",
                ModelRule::default().or_else(many),
                "it falls back to more than 8 models; leave some out",
            ),
            ("a", patient, "the patience is longer than 1 h; write less"),
        ] {
            let faults = ModelRules::new([(name, rule)]).unwrap_err();
            let told: Vec<_> = faults.iter().map(ToString::to_string).collect();
            assert_eq!(told, [format!("the model {name:?}: {expected}")]);
        }
    }
}
