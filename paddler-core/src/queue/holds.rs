//! For whom is room held back?
//!
//! A request of several sequences needs as much room at one upstream. Where others take each single one as it becomes
//! free, there never is so much. So once [`PASSES`] places at an upstream have gone past somebody in his turn, since there
//! was room for them and not for him, its room is held back for him: until he has a place, or waits no more. (Schedulers of
//! batch jobs do the same: they reserve for the first job that does not fit, and fill up around it.)
//!
//! What it costs is bounded: one upstream for each tenant; those of a higher class and all who go elsewhere are not held up;
//! and where it was in vain, nothing is held back for as long again, so that room lies idle half of the time at most.

use tracing::debug;

use super::tenants::Name;
use super::{Priority, Ticket};
use crate::Moment;
use crate::upstream::UpstreamId;

/// So many places at an upstream go past somebody who is too heavy for what is free: where little is asked for, he fits by
/// himself soon, and nothing need lie idle for him.
pub(super) const PASSES: u32 = 4;

/// Who found less room than he needs, and where.
#[derive(Debug)]
pub(super) struct Short {
    pub(super) ticket: Ticket,
    pub(super) tenant: Name,
    pub(super) priority: Priority,
    pub(super) upstream: UpstreamId,
}

#[derive(Debug)]
struct Hold {
    whose: Short,
    since: Moment,
    until: Moment,
    /// Whose it was waits no more.
    over: bool,
    served: bool,
}

/// Whose room is held back, and who may be next.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Those of this round, in order: the first of each tenant and for each upstream.
    short: Vec<Short>,
    held: Vec<Hold>,
    /// Where nothing is held back until when.
    resting: Vec<(UpstreamId, Moment)>,
}

impl Holds {
    /// A round begins. Returns those for whom room is held back, who are asked first.
    pub(super) fn begin(&mut self, now: Moment) -> Vec<Ticket> {
        self.short.clear();
        self.resting.retain(|(_, until)| now < *until);
        for over in self.held.extract_if(.., |hold| hold.until <= now) {
            let (Short { upstream, .. }, got) = (&over.whose, over.served);
            debug!(%upstream, got, "room is no longer held back");
            if !over.served {
                let rest = over.until.saturating_add(over.until.since(over.since));
                self.resting.push((over.whose.upstream, rest));
            }
        }
        self.held.iter().map(|hold| hold.whose.ticket).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Short> {
        self.short.iter().chain(self.held.iter().map(|hold| &hold.whose))
    }

    /// Whether room is held back for this tenant, or may be next.
    pub(super) fn has_one(&self, tenant: &Name, class: Priority) -> bool {
        self.all()
            .any(|short| short.tenant == *tenant && short.priority == class)
    }

    /// Somebody was asked in his turn and found less room than he needs. He is the first of his tenant.
    pub(super) fn found_short(&mut self, short: Short) {
        let rests = self
            .resting
            .iter()
            .any(|(upstream, _)| *upstream == short.upstream);
        if !rests && self.all().all(|other| other.upstream != short.upstream) {
            self.short.push(short);
        }
    }

    /// Past whom a place at this upstream goes that somebody of this class gets.
    pub(super) fn passed(&self, upstream: &UpstreamId, by: Priority) -> Option<Ticket> {
        let passed = |short: &&Short| short.upstream == *upstream && short.priority <= by;
        self.short.iter().find(passed).map(|short| short.ticket)
    }

    /// From now on room is held back for him.
    pub(super) fn hold(&mut self, ticket: Ticket, now: Moment, until: Moment) {
        if let Some(whose) = self.short.extract_if(.., |short| short.ticket == ticket).next() {
            debug!(upstream = %whose.upstream, "room is held back for a request that needs more than is free");
            self.held.push(Hold {
                whose,
                since: now,
                until,
                over: false,
                served: false,
            });
        }
    }

    /// He waits no more, so what was held back for him is free for others, who are asked again at once.
    pub(super) fn left(&mut self, ticket: Ticket, now: Moment) {
        self.short.retain(|short| short.ticket != ticket);
        if let Some(hold) = self.held.iter_mut().find(|hold| hold.whose.ticket == ticket) {
            hold.until = hold.until.min(now);
            hold.over = true;
        }
    }

    /// He has got a place.
    pub(super) fn served(&mut self, ticket: Ticket) {
        if let Some(hold) = self.held.iter_mut().find(|hold| hold.whose.ticket == ticket) {
            hold.served = true;
        }
    }

    /// When the first of them ends.
    pub(super) fn next_end(&self) -> Option<Moment> {
        self.held.iter().map(|hold| hold.until).min()
    }

    /// Whose room is held back for anybody.
    pub(super) fn held_back(&self) -> impl Iterator<Item = &UpstreamId> {
        let held = self.held.iter().filter(|hold| !hold.over);
        held.map(|hold| &hold.whose.upstream)
    }

    /// Whose room is not for somebody of this class, unless it is held back for himself.
    pub(super) fn kept_from(&self, priority: Priority, who: Option<Ticket>) -> Vec<UpstreamId> {
        let others = self
            .held
            .iter()
            .filter(|hold| !hold.over && hold.whose.priority <= priority && Some(hold.whose.ticket) != who);
        others.map(|hold| hold.whose.upstream.clone()).collect()
    }
}
