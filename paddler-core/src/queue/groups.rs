//! Who can use the same places?
//!
//! Requests that are alike in all that trees usually look at: if one of them found no place, the others need not be asked
//! in the same round. And for all of them it is known since when somebody is able to serve them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Ticket;
use super::round::Round;
use crate::Moment;
use crate::request::{RequestClass, RequestFacts};
use crate::upstream::UpstreamId;

/// What requests of one group have in common. How long a prompt is to the token, whose it is, and all else that a filter of the host's
/// may look at is not in it: so now and then others are asked too.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Likeness {
    class: RequestClass,
    model: Option<Arc<str>>,
    /// A tree may go by the name that was asked for.
    asked: Option<Arc<str>>,
    reaches_all: bool,
    patience: bool,
    /// What it takes to serve it.
    images: bool,
    sounds: bool,
    /// About how long its prompt is at least: whom it does not fit may serve a shorter one.
    length: u32,
    weight: u32,
    priority: i32,
    stream: bool,
    session: bool,
    only: Option<Arc<[UpstreamId]>>,
}

impl Likeness {
    fn of(facts: &RequestFacts) -> Self {
        Self {
            class: facts.class,
            model: facts.model.clone(),
            asked: facts.asked.clone(),
            reaches_all: facts.as_facts().reaches_all(),
            patience: facts.patience.is_some(),
            images: facts.images,
            sounds: facts.sounds,
            length: facts.least_tokens.checked_ilog2().unwrap_or(0),
            weight: facts.weight,
            priority: facts.priority,
            stream: facts.stream,
            session: facts.session.is_some(),
            only: facts.only.clone(),
        }
    }
}

/// The number of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupId(u64);

#[derive(Debug)]
struct Group {
    like: Option<Likeness>,
    members: BTreeSet<Ticket>,
    able_since: Option<Moment>,
    /// The round in which it was found that none of them can get a place.
    passed: u64,
}

/// All groups of whom somebody waits.
#[derive(Debug, Default)]
pub(super) struct Groups {
    alike: HashMap<Likeness, GroupId>,
    groups: HashMap<GroupId, Group>,
    next: u64,
}

impl Groups {
    /// Somebody joins those who are like him, or is `alone`.
    pub(super) fn join(&mut self, facts: &RequestFacts, alone: bool, ticket: Ticket) -> GroupId {
        let like = (!alone).then(|| Likeness::of(facts));
        let known = like.as_ref().and_then(|like| self.alike.get(like)).copied();
        let id = known.unwrap_or_else(|| {
            self.next += 1;
            let id = GroupId(self.next);
            if let Some(like) = &like {
                self.alike.insert(like.clone(), id);
            }
            let group = Group {
                like,
                members: BTreeSet::new(),
                able_since: Some(Moment::ZERO),
                passed: 0,
            };
            self.groups.insert(id, group);
            id
        });
        if let Some(group) = self.groups.get_mut(&id) {
            group.members.insert(ticket);
        }
        id
    }

    pub(super) fn leave(&mut self, id: GroupId, ticket: Ticket) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.members.remove(&ticket);
        if group.members.is_empty() {
            if let Some(like) = &group.like {
                self.alike.remove(like);
            }
            self.groups.remove(&id);
        }
    }

    /// Those of this group, in the order in which they came.
    pub(super) fn members(&self, id: GroupId) -> impl Iterator<Item = &Ticket> {
        self.groups.get(&id).into_iter().flat_map(|group| &group.members)
    }

    /// Nobody of this group can get a place in this round.
    pub(super) fn pass(&mut self, id: GroupId, round: &Round) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.passed = round.number;
        }
    }

    pub(super) fn is_passed(&self, id: GroupId, round: &Round) -> bool {
        let group = self.groups.get(&id);
        group.is_some_and(|group| group.passed == round.number)
    }

    /// Since when somebody is able to serve this group.
    pub(super) fn able_since(&self, id: GroupId) -> Option<Moment> {
        self.groups.get(&id)?.able_since
    }

    /// Whether somebody is able to serve this group now. Returns its members if that is news.
    pub(super) fn set_able(&mut self, id: GroupId, able: bool, now: Moment) -> Option<&BTreeSet<Ticket>> {
        let group = self.groups.get_mut(&id)?;
        if group.able_since.is_some() == able {
            return None;
        }
        // Those who never saw it otherwise begin as if it had always been so.
        group.able_since = able.then_some(now);
        Some(&group.members)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_something_else_is_asked_for_himself() {
        let (mut groups, mut ids) = (Groups::default(), BTreeSet::new());
        let plain = RequestFacts::new();
        let mut others = [(); 4].map(|()| plain.clone());
        others[0].images = true;
        others[1].sounds = true;
        others[2].least_tokens = 100_000;
        others[3].asked = Some("alias".into());
        for (at, facts) in others.iter().chain([&plain, &plain]).enumerate() {
            ids.insert(groups.join(
                facts,
                false,
                Ticket {
                    arrived: Moment::ZERO,
                    number: at as u64,
                },
            ));
        }
        assert_eq!(ids.len(), 5, "and who is alike is in one group");
    }
}
