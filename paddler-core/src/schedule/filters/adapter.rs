//! Where does the adapter (LoRA) that is asked for run, or have room to?

use std::fmt;

use crate::schedule::{CandidateSet, Class, Filter, FilterError, Lack, PickCx, Reads, Reason};
use crate::upstream::UpstreamIndex;

/// Keeps upstreams by the adapter that is asked for. Made by [`lora_active`], [`lora_room`] and [`lora_low_cost`].
///
/// An upstream that does not tell about adapters has none active, and no room. A request for a base model has no
/// adapter, so it is active nowhere; that is the rule of the original tree, and a reason to ask `when: adapter` first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AdapterFilter {
    active: bool,
    room: bool,
}

/// The adapter is in use there: running or waiting by report, or by an open lease of ours.
pub fn lora_active() -> AdapterFilter {
    AdapterFilter {
        active: true,
        room: false,
    }
}

/// One more distinct adapter can be in use there: fewer are than the maximum.
pub fn lora_room() -> AdapterFilter {
    AdapterFilter {
        active: false,
        room: true,
    }
}

/// Either of the two: the adapter costs no wait for another one to finish.
pub fn lora_low_cost() -> AdapterFilter {
    AdapterFilter {
        active: true,
        room: true,
    }
}

impl fmt::Debug for AdapterFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.active, self.room) {
            (true, true) => "lora_low_cost",
            (true, false) => "lora_active",
            _ => "lora_room",
        })
    }
}

impl Filter for AdapterFilter {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        set.retain_words(|word, bits| {
            let active = if self.active {
                bits & cx.active_word(word)
            } else {
                0
            };
            let room = if self.room { cx.adapter_room(word, bits) } else { 0 };
            active | room
        });
        Ok(())
    }

    fn value(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Option<f64> {
        cx.adapters(upstream).map(|(active, _)| f64::from(active))
    }

    fn lack(&self, _cx: &PickCx<'_>) -> Lack {
        Lack::new(Class::Later, Reason::NoAdapterRoom)
    }

    fn reads(&self) -> Reads {
        Reads::ADAPTERS
    }
}
