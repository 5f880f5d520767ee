//! Who pays for what an answer uses?
//!
//! Two count tokens: the queue, which charged the tenant for his place, and the client's key, which has so many a minute.
//! Both have charged an estimate. When the answer has ended or was cut, both are told what it used, as far as it says so;
//! where it does not, the estimates stand.

use http::HeaderMap;

use super::rights::InUse;
use super::usage::Usage;
use super::waiting::Owed;
use crate::clock::Clock;
use crate::queue::Used;

/// What a request was charged, and whom to tell what it used. Dropped, the client has one request less under way.
#[derive(Debug)]
pub(super) struct Bill {
    /// What its place was charged, if it was.
    pub(super) place: Option<Owed>,
    /// What the client uses of his allowance.
    pub(super) client: Option<InUse>,
    pub(super) clock: Clock,
    /// The answer says that the request was wrong, so none was made for it.
    pub(super) wrong: bool,
}

impl Bill {
    /// Whether anybody wants to know.
    fn counts(&self) -> bool {
        self.place.is_some() || self.client.as_ref().is_some_and(InUse::counts_tokens)
    }

    fn settle(&mut self, used: Used) {
        if let (Some(client), Used::Tokens { prompt, output }) = (&mut self.client, used) {
            client.used(prompt, output, self.clock.now());
        }
        self.settle_place(used);
    }

    /// The request was wrong: at most its prompt was read. How much of that, nobody says, and an estimate of what was wrong may
    /// be far off.
    fn settle_wrong(&mut self) {
        if let Some(client) = &mut self.client {
            client.found_wrong(self.clock.now());
        }
        self.settle_place(Used::PROMPT);
    }

    fn settle_place(&mut self, used: Used) {
        if let Some(owed) = self.place.take() {
            owed.settle(used);
        }
    }
}

/// Watches an answer for whoever pays. Dropped, what is known by then counts.
#[derive(Debug)]
pub(super) struct Metered {
    bill: Bill,
    /// `None`: nobody wants to know, or it cannot be read.
    usage: Option<Usage>,
}

impl Metered {
    /// For an answer with these headers. `asked`: somebody wants to know who does not pay.
    pub(super) fn new(bill: Bill, headers: &HeaderMap, asked: bool) -> Self {
        let usage = (asked || bill.counts()).then(|| Usage::of(headers)).flatten();
        Self { bill, usage }
    }

    /// What it says so far.
    pub(super) fn used(&self) -> Option<Used> {
        self.usage.as_ref().and_then(Usage::used)
    }

    /// These bytes of it pass.
    pub(super) fn saw(&mut self, bytes: &[u8]) {
        if let Some(usage) = &mut self.usage {
            usage.saw(bytes);
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        match self.used() {
            Some(used) => self.bill.settle(used),
            None if self.bill.wrong => self.bill.settle_wrong(),
            None => {}
        }
    }
}
