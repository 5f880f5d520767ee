//! How is a condition on the request written?

use super::Compiler;
use super::call::Call;
use crate::config::read::At;
use crate::config::registry;
use crate::request::Task;
use crate::schedule::Condition;

/// The conditions that are built in.
pub(in crate::config) const CONDITIONS: &[&str] = &[
    "critical",
    "sheddable",
    "adapter",
    "stream",
    "session",
    "priority",
    "tokens",
    "model",
    "task",
    "all",
    "any",
    "not",
];

impl Compiler<'_> {
    pub(super) fn condition(&mut self, at: &At<'_>) -> Option<Condition> {
        if self.faults.notes() {
            let added = self.registry.conditions().keys();
            self.note(at, "condition", (CONDITIONS, added), |this, call| {
                this.condition_of(call);
            });
            return None;
        }
        let call = self.call(at, "a condition")?;
        self.condition_of(call)
    }

    fn condition_of(&mut self, call: Call<'_>) -> Option<Condition> {
        let condition = match call.name {
            "critical" => Condition::Critical,
            "sheddable" => Condition::Not(Box::new(Condition::Critical)),
            "adapter" => Condition::Adapter,
            "stream" => Condition::Stream,
            "session" => Condition::Session,
            _ => return self.condition_with_params(call),
        };
        self.alone(&call)?;
        Some(condition)
    }

    fn condition_with_params(&mut self, call: Call<'_>) -> Option<Condition> {
        match call.name {
            "priority" => {
                let range = i64::from(i32::MIN)..=i64::from(i32::MAX);
                let least = self.at_least(&call, "{priority: {at_least: 1}}")?;
                least.whole(self.faults, range).map(Condition::PriorityAtLeast)
            }
            "tokens" => {
                let least = self.at_least(&call, "{tokens: {at_least: 4000}}")?;
                least
                    .whole(self.faults, 0..=i64::from(u32::MAX))
                    .map(Condition::TokensAtLeast)
            }
            "model" => {
                let name = self.params(&call, "{model: llama-3}")?.text(self.faults)?;
                Some(Condition::Model(name.into()))
            }
            "task" => {
                let words: Vec<_> = Task::ALL.iter().map(|task| (task.as_str(), *task)).collect();
                let task = self.params(&call, "{task: chat}")?.word(self.faults, &words)?;
                Some(Condition::Task(task))
            }
            "all" => self
                .conditions(&call, "{all: [critical, stream]}")
                .map(Condition::All),
            "any" => self
                .conditions(&call, "{any: [critical, stream]}")
                .map(Condition::Any),
            "not" => {
                let other = self.params(&call, "{not: stream}")?;
                Some(Condition::Not(Box::new(self.condition(&other)?)))
            }
            _ => self.registered_condition(call),
        }
    }

    fn registered_condition(&mut self, call: Call<'_>) -> Option<Condition> {
        let conditions = self.registry.conditions();
        let Some(make) = conditions.get(call.name) else {
            let known = CONDITIONS
                .iter()
                .copied()
                .chain(conditions.keys().map(String::as_str));
            self.unknown(&call, "a condition", known);
            return None;
        };
        registry::make(make, (&call.path, call.place), call.params, self.faults)
    }

    fn at_least<'v>(&mut self, call: &Call<'v>, example: &str) -> Option<At<'v>> {
        let mut fields = self.params(call, example)?.fields(self.faults)?;
        let least = fields.need("at_least", self.faults);
        fields.end(self.faults);
        least
    }

    fn conditions(&mut self, call: &Call<'_>, example: &str) -> Option<Vec<Condition>> {
        let parts = self.params(call, example)?.some_list(self.faults)?;
        let parts: Vec<_> = parts.iter().map(|part| self.condition(part)).collect();
        parts.into_iter().collect()
    }
}
