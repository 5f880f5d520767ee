//! What does a place cost in the end?
//!
//! Its tenant was charged an estimate. Whoever has the place says how far it has come; dropped, it is settled by that, so
//! that no way out of a request can forget it.

use std::sync::{Arc, Mutex, PoisonError};

use crate::queue::{Charge, Used};

/// What is to be settled. Whoever next has the queue does it, so that an answer's end waits for no round. There are no more
/// than charges in the open: each was made under the queue's lock, where what had come before was settled.
#[derive(Debug, Default)]
pub(super) struct Settlements(Mutex<Vec<(Charge, Used)>>);

impl Settlements {
    pub(super) fn take(&self) -> Vec<(Charge, Used)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn add(&self, charge: Charge, used: Used) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((charge, used));
    }
}

/// What a place was charged, until it is known what it has used.
#[derive(Debug)]
pub(in crate::forward) struct Owed(Box<Open>);

#[derive(Debug)]
struct Open {
    charge: Charge,
    /// What it comes to if nothing more is heard of it; `None`: the estimate stands.
    used: Option<Used>,
    settlements: Arc<Settlements>,
}

impl Owed {
    /// Nothing, until it is sent.
    pub(super) fn new(charge: Charge, settlements: Arc<Settlements>) -> Self {
        Self(Box::new(Open {
            charge,
            used: Some(Used::Nothing),
            settlements,
        }))
    }

    /// The request is on its way. Of one that streams it is seen when its answer begins: before, the prompt is all. Of any
    /// other nobody knows how much of the answer was made, so the estimate stands.
    pub(in crate::forward) fn sent(&mut self, streams: bool) {
        self.0.used = streams.then_some(Used::PROMPT);
    }

    /// Its answer has begun: if it does not say what it used, the estimate stands.
    pub(in crate::forward) fn answered(&mut self) {
        self.0.used = None;
    }

    /// Somebody else will say what it has used; until then the estimate stands.
    pub(in crate::forward) fn into_charge(mut self) -> Charge {
        self.0.used = None;
        self.0.charge.clone()
    }

    /// This is what it has used.
    pub(in crate::forward) fn settle(mut self, used: Used) {
        self.0.used = Some(used);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(used) = self.used {
            self.settlements.add(self.charge.clone(), used);
        }
    }
}
