//! How is one thing named, with or without parameters?

use serde_json::json;

use super::Compiler;
use crate::config::fault::Faults;
use crate::config::read::{At, Path};
use crate::config::suggest;
use crate::config::value::{Kind, Place, quoted};

/// A name alone (`slot`), or with what it is to know (`{fresh: {max_age: 10s}}`).
pub(super) struct Call<'v> {
    pub(super) name: &'v str,
    /// Where the name stands.
    pub(super) place: Option<Place>,
    pub(super) path: Path<'v>,
    pub(super) params: Option<At<'v>>,
}

impl<'v> Call<'v> {
    pub(super) fn fault(&self, faults: &mut Faults, problem: impl Into<String>, mend: impl Into<String>) {
        faults.add(&self.path, self.place, problem, Some(mend.into()));
    }
}

impl Compiler<'_> {
    /// Notes each way to write one of these, if that is asked. `read` is shown each name that is built in, and notes what it
    /// takes with it; those that a host has added take what they like.
    pub(super) fn note<'v>(
        &mut self,
        at: &At<'v>,
        part: &'static str,
        (built_in, added): (&[&'static str], impl Iterator<Item = &'v String>),
        mut read: impl FnMut(&mut Self, Call<'v>),
    ) {
        let Some(at) = at.refer(part, self.faults) else {
            return;
        };
        for name in added {
            at.takes_word(self.faults, name);
            At::probe(at.path.key(name)).takes(self.faults, || json!({}));
        }
        for name in built_in {
            let call = Call {
                name,
                place: None,
                path: at.path.clone(),
                params: Some(At::probe(at.path.key(name))),
            };
            read(self, call);
        }
    }

    /// Reads a name with or without parameters. `what` it should be, for the fault: "a filter".
    pub(super) fn call<'v>(&mut self, at: &At<'v>, what: &str) -> Option<Call<'v>> {
        match &at.value.kind {
            Kind::String(name) => Some(Call {
                name,
                place: at.place,
                path: at.path.clone(),
                params: None,
            }),
            Kind::Map(pairs) => {
                let [(key, value)] = pairs.as_slice() else {
                    let problem = format!("{what} is one name, and here are {}", pairs.len());
                    at.fault_mend(
                        self.faults,
                        problem,
                        "several go into `{all: [..]}` or into nodes of their own",
                    );
                    return None;
                };
                Some(Call {
                    name: &key.text,
                    place: key.place,
                    path: at.path.clone(),
                    params: Some(at.under(key, value)),
                })
            }
            _ => at.wrong(self.faults, what),
        }
    }

    /// Nothing more is to be known: it stands alone.
    pub(super) fn alone(&mut self, call: &Call<'_>) -> Option<()> {
        if let Some(slot) = self.faults.slot(&call.path) {
            slot.word(call.name);
            return Some(());
        }
        let Some(params) = &call.params else {
            return Some(());
        };
        let problem = format!("`{}` takes no parameters", call.name);
        params.fault_mend(self.faults, problem, format!("write `{}`", call.name));
        None
    }

    /// What it is to know, which it cannot do without. `example` shows it whole.
    pub(super) fn params<'v>(&mut self, call: &Call<'v>, example: &str) -> Option<At<'v>> {
        if let Some(slot) = self.faults.slot(&call.path) {
            slot.one_key();
        }
        match &call.params {
            Some(params) if params.value.kind != Kind::Null => Some(params.clone()),
            _ => {
                let problem = format!("`{}` needs parameters", call.name);
                call.fault(self.faults, problem, format!("for example {example}"));
                None
            }
        }
    }

    /// Nobody knows the name.
    pub(super) fn unknown<'k>(&mut self, call: &Call<'_>, what: &str, known: impl Iterator<Item = &'k str>) {
        let known: Vec<_> = known.collect();
        let problem = format!("{} is not {what}", quoted(call.name));
        self.faults
            .add(&call.path, call.place, problem, suggest::mend(call.name, &known));
    }
}
