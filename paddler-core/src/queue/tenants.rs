//! Which tenant of a class is next, and which of his requests?
//!
//! The one with the least on his account, which counts the tokens he was charged, divided by his weight. Who begins to
//! wait again is lifted to the least account of those who wait, so that time without requests is no credit. (The virtual
//! token counter of Sheng et al., OSDI 2024.) Of a tenant's requests, whoever came first, less his hurry.
//!
//! However many kinds of requests a client makes up, to find the next is a look into an ordered set.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::Ticket;
use super::charge::Charge;
use super::groups::{GroupId, Groups};
use super::round::Round;

/// The most that a tenant may count for, against 1.
pub(crate) const MOST_WEIGHT: u32 = 1_000;

/// Whose it is. All requests without a tenant share one account.
pub(super) type Name = Option<Arc<str>>;

/// The place of a request among those of its tenant: what [`due`](super::QueueLimits::due) says, then the arrival.
pub(super) type Turn = (i128, Ticket);

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
    /// The most that an account has come to.
    most: u64,
}

/// Accounts are brought down when one has come this far: by then no single charge reaches the end of the type.
const FAR: u64 = 1 << 62;

#[derive(Debug, Default)]
struct Account {
    used: u64,
    weight: u32,
    /// All of his who wait.
    turns: BTreeSet<Turn>,
    /// Of those who are not for themselves, who stands in which line: with those who can use the same places.
    lines: BTreeSet<(GroupId, Turn)>,
    /// The first of each line, with which it is; and all who are for themselves.
    heads: BTreeMap<Turn, Option<GroupId>>,
    /// In which round the last was asked, and who it was. Whoever comes before him has been asked, or need not be.
    asked: Option<(u64, Turn)>,
}

/// Tokens as accounts count them, for a tenant of this weight.
fn parts(tokens: u64, weight: u32) -> u64 {
    tokens.saturating_mul(PARTS) / u64::from(weight.clamp(1, MOST_WEIGHT))
}

impl Account {
    /// The first who is still to be asked in this round.
    fn next(&mut self, round: &Round, groups: &Groups) -> Option<Turn> {
        use std::ops::Bound::{Excluded, Unbounded};
        let asked = self.asked.filter(|(number, _)| *number == round.number);
        let after = asked.map_or(Unbounded, |(_, last)| Excluded(last));
        let mut heads = self.heads.range((after, Unbounded));
        let passed = |group: &Option<GroupId>| group.is_some_and(|group| groups.is_passed(group, round));
        let (turn, _) = heads.find(|(_, group)| !passed(group))?;
        self.asked = Some((round.number, *turn));
        Some(*turn)
    }

    fn head(&self, line: GroupId) -> Option<Turn> {
        let first = self.lines.range((line, (i128::MIN, Ticket::FIRST))..).next();
        first.filter(|(group, _)| *group == line).map(|(_, turn)| *turn)
    }

    fn join(&mut self, line: Option<GroupId>, turn: Turn) {
        self.turns.insert(turn);
        if let Some(line) = line {
            let before = self.head(line);
            self.lines.insert((line, turn));
            if before.is_some_and(|before| before < turn) {
                return;
            }
            if let Some(before) = before {
                self.heads.remove(&before);
            }
        }
        self.heads.insert(turn, line);
    }

    fn leave(&mut self, line: Option<GroupId>, turn: Turn) {
        self.turns.remove(&turn);
        let was_first = self.heads.remove(&turn).is_some();
        if let Some(line) = line {
            self.lines.remove(&(line, turn));
            if let Some(head) = self.head(line).filter(|_| was_first) {
                self.heads.insert(head, Some(line));
            }
        }
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
        let account = self.accounts.entry(name.clone()).or_default();
        account.weight = weight.clamp(1, MOST_WEIGHT);
        if account.turns.is_empty() {
            account.used = account.used.max(least);
            self.order.insert((account.used, name.clone()));
        }
        account.join(group, turn);
    }

    /// Somebody of this tenant waits no more.
    pub(super) fn leave(&mut self, name: &Name, group: Option<GroupId>, turn: Turn) {
        let Some(account) = self.accounts.get_mut(name) else {
            return;
        };
        account.leave(group, turn);
        let used = account.used;
        if account.turns.is_empty() && self.order.remove(&(used, name.clone())) && self.order.is_empty() {
            self.floor = self.floor.max(used);
        }
    }

    /// Who is to be asked next in this round.
    pub(super) fn next(&mut self, round: &mut Round, class: usize, groups: &Groups) -> Option<Turn> {
        use std::ops::Bound::{Included, Unbounded};
        // Whoever had nobody left to ask in this round has none now: accounts only grow meanwhile.
        let from = round.reached[class].take();
        let from = from.as_ref().map_or(Unbounded, Included);
        let mut asked = self.order.range((from, Unbounded));
        let found = asked.find_map(|key| {
            let turn = self.accounts.get_mut(&key.1)?.next(round, groups)?;
            Some((key.clone(), turn))
        });
        let last = || self.order.last().cloned();
        let (reached, turn) = found.unzip();
        round.reached[class] = reached.or_else(last);
        turn
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

    /// Before a round: accounts that have come far are brought down, all by as much, so that they never reach the end. Who
    /// is further behind the others than that is not brought below nothing.
    pub(super) fn bring_down(&mut self) {
        if self.most < FAR {
            return;
        }
        let by = FAR / 2;
        self.order.clear();
        for (name, account) in &mut self.accounts {
            account.used = account.used.saturating_sub(by);
            if !account.turns.is_empty() {
                self.order.insert((account.used, name.clone()));
            }
        }
        self.floor = self.floor.saturating_sub(by);
        self.most -= by;
    }

    fn change(&mut self, name: &Name, used: impl FnOnce(&Account) -> u64) {
        let Some(account) = self.accounts.get_mut(name) else {
            return;
        };
        let (before, after) = (account.used, used(account));
        account.used = after;
        self.most = self.most.max(after);
        if !account.turns.is_empty() && before != after {
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
        let last = account.turns.last()?;
        Some((*last, account.turns.len(), account.weight))
    }

    /// How many requests of this tenant wait.
    pub(super) fn waiting(&self, name: &Name) -> usize {
        self.accounts.get(name).map_or(0, |account| account.turns.len())
    }

    /// Makes room for one more tenant who may have nobody waiting later. Who is at the floor is as good as new; of the
    /// others, those who owe least go first.
    fn forget(&mut self) {
        if self.accounts.len() - self.order.len() < REMEMBERED {
            return;
        }
        let least = self.least();
        self.accounts
            .retain(|_, account| !account.turns.is_empty() || account.used > least);
        let mut owing: Vec<_> = self
            .accounts
            .values()
            .filter(|account| account.turns.is_empty())
            .map(|one| one.used)
            .collect();
        if owing.len() > REMEMBERED / 2 {
            let middle = owing.len() / 2;
            let (_, middle, _) = owing.select_nth_unstable(middle);
            let middle = *middle;
            self.accounts
                .retain(|_, account| !account.turns.is_empty() || account.used > middle);
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
        self.turns.len() as u64 * u64::from(other_weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    fn turn(number: u64) -> Turn {
        let arrived = Moment::from_millis(number);
        (i128::from(number), Ticket { arrived, number })
    }

    #[test]
    fn accounts_that_have_come_far_are_brought_down_and_the_order_stays() {
        let names = ["b", "a", "c"].map(|name| Some(Arc::from(name)));
        let mut tenants = Tenants {
            floor: FAR - 1,
            ..Tenants::default()
        };
        for (number, name) in names.iter().enumerate() {
            tenants.join(name, 1, None, turn(number as u64));
            tenants.change(name, |account| account.used + [1, 2, 3][number]);
        }
        tenants.bring_down();
        let used = names.each_ref().map(|name| tenants.accounts[name].used);
        assert_eq!(used, [FAR / 2, FAR / 2 + 2, FAR / 2 + 3]);
        let order: Vec<_> = tenants.order.iter().map(|(_, name)| name.clone()).collect();
        assert_eq!(order, names);
        tenants.bring_down();
        assert_eq!(tenants.accounts[&names[0]].used, FAR / 2, "once is enough");
    }
}
