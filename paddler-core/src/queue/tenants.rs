//! Which tenant of a class is next, and which of his requests?
//!
//! The one with the least on his account, which counts the tokens he was charged, divided by his weight. Who begins to
//! wait again is lifted to the least account of those who wait, so that time without requests is no credit. (The virtual
//! token counter of Sheng et al., OSDI 2024.) Of a tenant's requests, the one with the earliest deadline.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Ticket;
use super::charge::Charge;
use super::groups::{GroupId, Groups, Round};
use crate::Moment;

/// The most that a tenant may count for, against 1.
pub(crate) const MOST_WEIGHT: u32 = 1_000;

/// Whose it is. All requests without a tenant share one account.
pub(super) type Name = Option<Arc<str>>;

/// The place of a request among those of its tenant: by deadline, then by arrival.
pub(super) type Turn = (Moment, Ticket);

/// Tenants remembered of whom nobody waits. More are only known while they wait, which the queue's own limit bounds.
const REMEMBERED: usize = 1024;

/// Parts of a token that accounts count in, so that weights up to [`MOST_WEIGHT`] divide.
const PARTS: u64 = 1_000;

/// The tenants of one class.
#[derive(Debug, Default)]
pub(super) struct Tenants {
    accounts: HashMap<Name, Account>,
    /// Those of whom somebody waits, the next first.
    order: BTreeSet<(u64, Name)>,
    /// What the account of whoever left last came to.
    floor: u64,
}

#[derive(Debug)]
struct Account {
    used: u64,
    weight: u32,
    waiting: usize,
    lines: Vec<Line>,
}

/// Those of a tenant who can use the same places, or those of whom each is for himself.
#[derive(Debug)]
struct Line {
    group: Option<GroupId>,
    turns: BTreeSet<Turn>,
    /// In which round the last was asked, and who it was.
    asked: Option<(u64, Turn)>,
}

impl Line {
    /// The first who has not been asked in this round.
    fn next(&self, round: &Round, groups: &Groups) -> Option<Turn> {
        if self.group.is_some_and(|group| groups.is_passed(group, round)) {
            return None;
        }
        match self.asked.filter(|(number, _)| *number == round.number) {
            None => self.turns.first().copied(),
            Some((_, last)) => {
                use std::ops::Bound::{Excluded, Unbounded};
                self.turns.range((Excluded(last), Unbounded)).next().copied()
            }
        }
    }
}

/// Tokens as accounts count them, for a tenant of this weight.
fn parts(tokens: u64, weight: u32) -> u64 {
    tokens.saturating_mul(PARTS) / u64::from(weight.clamp(1, MOST_WEIGHT))
}

impl Account {
    fn next(&self, round: &Round, groups: &Groups) -> Option<Turn> {
        self.lines
            .iter()
            .filter_map(|line| line.next(round, groups))
            .min()
    }

    fn line(&mut self, group: Option<GroupId>) -> Option<&mut Line> {
        self.lines.iter_mut().find(|line| line.group == group)
    }
}

impl Tenants {
    /// The least account of those who wait; of nobody, that of whoever left last.
    fn least(&self) -> u64 {
        self.order.first().map_or(self.floor, |(used, _)| *used)
    }

    /// Somebody of this tenant begins to wait.
    pub(super) fn join(&mut self, name: &Name, weight: u32, group: Option<GroupId>, turn: Turn) {
        let least = self.least();
        if !self.accounts.contains_key(name) {
            self.forget();
        }
        let account = self.accounts.entry(name.clone()).or_insert(Account {
            used: least,
            weight: 1,
            waiting: 0,
            lines: Vec::new(),
        });
        account.weight = weight.clamp(1, MOST_WEIGHT);
        if account.waiting == 0 {
            account.used = account.used.max(least);
            self.order.insert((account.used, name.clone()));
        }
        account.waiting += 1;
        match account.line(group) {
            Some(line) => {
                line.turns.insert(turn);
            }
            None => account.lines.push(Line {
                group,
                turns: BTreeSet::from([turn]),
                asked: None,
            }),
        }
    }

    /// Somebody of this tenant waits no more.
    pub(super) fn leave(&mut self, name: &Name, group: Option<GroupId>, turn: Turn) {
        let Some(account) = self.accounts.get_mut(name) else {
            return;
        };
        let Some(line) = account.line(group) else { return };
        if !line.turns.remove(&turn) {
            return;
        }
        if line.turns.is_empty() {
            account.lines.retain(|line| !line.turns.is_empty());
        }
        account.waiting -= 1;
        if account.waiting == 0 {
            let used = account.used;
            self.order.remove(&(used, name.clone()));
            if self.order.is_empty() {
                self.floor = self.floor.max(used);
            }
        }
    }

    /// Who is to be asked next in this round.
    pub(super) fn next(&self, round: &mut Round, class: usize, groups: &Groups) -> Option<Turn> {
        use std::ops::Bound::{Included, Unbounded};
        // Whoever had nobody left to ask in this round has none now: accounts only grow meanwhile.
        let from = round.reached[class].take();
        let from = from.as_ref().map_or(Unbounded, Included);
        let mut asked = self.order.range((from, Unbounded));
        let found = asked.find_map(|key| {
            let turn = self.accounts.get(&key.1)?.next(round, groups)?;
            Some((key.clone(), turn))
        });
        let last = || self.order.last().cloned();
        let (reached, turn) = found.unzip();
        round.reached[class] = reached.or_else(last);
        turn
    }

    /// He was asked in this round, and so were those before him.
    pub(super) fn asked(&mut self, name: &Name, group: Option<GroupId>, turn: Turn, round: &Round) {
        let account = self.accounts.get_mut(name);
        if let Some(line) = account.and_then(|account| account.line(group)) {
            line.asked = Some((round.number, turn));
        }
    }

    /// Somebody of this tenant gets a place.
    pub(super) fn charge(&mut self, charge: &Charge) {
        self.change(&charge.tenant, |account| {
            account
                .used
                .saturating_add(parts(charge.tokens, charge.tenant_weight))
        });
    }

    /// What he was charged turns out to be `due`: at the weight of then, whatever it is by now.
    pub(super) fn settle(&mut self, charge: &Charge, due: u64) {
        self.change(&charge.tenant, |account| {
            let of_then = |tokens| parts(tokens, charge.tenant_weight);
            let (was, is) = (of_then(charge.tokens), of_then(due));
            account.used.saturating_add(is).saturating_sub(was)
        });
    }

    fn change(&mut self, name: &Name, used: impl FnOnce(&Account) -> u64) {
        let Some(account) = self.accounts.get_mut(name) else {
            return;
        };
        let (before, after) = (account.used, used(account));
        account.used = after;
        if account.waiting > 0 && before != after {
            self.order.remove(&(before, name.clone()));
            self.order.insert((after, name.clone()));
        }
    }

    /// Whose last request goes when one has to: whoever has most waiting for his weight; of two, who is served later.
    /// With how many wait, and his weight.
    pub(super) fn largest(&self) -> Option<(Turn, usize, u32)> {
        let waiting = self
            .order
            .iter()
            .filter_map(|(used, name)| Some((*used, self.accounts.get(name)?)));
        let (_, account) = waiting.max_by(|(used, one), (other_used, other)| {
            let (one_part, other_part) = (one.part(other.weight), other.part(one.weight));
            one_part.cmp(&other_part).then(used.cmp(other_used))
        })?;
        let last = account.lines.iter().filter_map(|line| line.turns.last()).max()?;
        Some((*last, account.waiting, account.weight))
    }

    /// How many requests of this tenant wait.
    pub(super) fn waiting(&self, name: &Name) -> usize {
        self.accounts.get(name).map_or(0, |account| account.waiting)
    }

    /// Makes room for one more tenant who may have nobody waiting later. Who is at the floor is as good as new; of the
    /// others, those who owe least go first.
    fn forget(&mut self) {
        if self.accounts.len() - self.order.len() < REMEMBERED {
            return;
        }
        let least = self.least();
        self.accounts
            .retain(|_, account| account.waiting > 0 || account.used > least);
        let mut owing: Vec<_> = self
            .accounts
            .values()
            .filter(|account| account.waiting == 0)
            .map(|one| one.used)
            .collect();
        if owing.len() > REMEMBERED / 2 {
            let middle = owing.len() / 2;
            let (_, middle, _) = owing.select_nth_unstable(middle);
            let middle = *middle;
            self.accounts
                .retain(|_, account| account.waiting > 0 || account.used > middle);
        }
    }

    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.accounts.len()
    }
}

impl Account {
    /// His part of the queue, to be compared with another's whose weight this is.
    fn part(&self, other_weight: u32) -> u64 {
        self.waiting as u64 * u64::from(other_weight)
    }
}
