//! How are the keys of a map taken, so that each one is known?

use super::fault::Faults;
use super::read::{At, Path};
use super::suggest;
use super::value::{Key, Kind, Place};

impl<'v> At<'v> {
    /// A map whose keys are known.
    pub(super) fn fields(&self, faults: &mut Faults) -> Option<Fields<'v>> {
        let mut pairs = self.pairs(faults)?;
        if faults.notes() {
            pairs.clear();
        }
        Some(Fields {
            place: self.place,
            path: self.path.clone(),
            pairs,
            known: Vec::new(),
            notes: faults.notes(),
        })
    }
}

/// A map while its fields are taken out. What nobody asks for is a fault at the end.
pub(super) struct Fields<'v> {
    path: Path<'v>,
    place: Option<Place>,
    pairs: Vec<(&'v Key, At<'v>)>,
    known: Vec<&'static str>,
    /// Whether it is asked what is taken, and not what is there: then every key is.
    notes: bool,
}

impl<'v> Fields<'v> {
    /// What stands under a key. A key with nothing under it is a fault: it was meant to say something.
    pub(super) fn take(&mut self, name: &'static str, faults: &mut Faults) -> Option<At<'v>> {
        let at = self.take_any(name)?;
        faults.slot(&at.path);
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
        if self.notes {
            return Some(At::probe(self.path.key(name)));
        }
        let index = self.index(name)?;
        Some(self.pairs.remove(index).1)
    }

    /// What stands under a key that has to be there.
    pub(super) fn need(&mut self, name: &'static str, faults: &mut Faults) -> Option<At<'v>> {
        if let Some(slot) = faults.slot(&self.path) {
            slot.need(name);
        }
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
        self.notes || self.index(name).is_some()
    }

    /// What stands under a key that is known for nothing but its fault.
    pub(super) fn take_faulty(&mut self, name: &'static str) -> Option<At<'v>> {
        let index = self.index(name)?;
        Some(self.pairs.remove(index).1)
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.pairs.iter().position(|(key, _)| key.text == name)
    }

    /// Says of two keys, each of which is taken, that exactly one is to be there.
    pub(super) fn one_of(&self, names: [&'static str; 2], faults: &mut Faults) {
        if let Some(slot) = faults.slot(&self.path) {
            slot.one_of(names);
        }
    }

    /// Every key that is left is one that nobody knows.
    pub(super) fn end(self, faults: &mut Faults) {
        for (key, at) in &self.pairs {
            let mend = suggest::mend(&key.text, &self.known);
            faults.add(&at.path, key.place, "unknown key", mend);
        }
    }
}
