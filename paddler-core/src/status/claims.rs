//! Whose word counts where several sources tell of one upstream?
//!
//! Sources stand in an order, and the earlier one's word counts. One upstream that is told under two names, by two sources, is
//! one: what listens at one host and port, below one path, gets one share, under the earlier source's name. It leaves when nobody tells of it any
//! more; who is left then counts. A source that has ended goes on to be believed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::StatusEvent;
use crate::upstream::{UpstreamId, UpstreamSpec};

/// Where a source stands in the order.
pub(super) type Rank = usize;

/// The host's own word comes before that of any source.
pub(super) const HOST: Rank = 0;

/// A host and a port, and the path there.
type Place = String;

/// What each source tells.
#[derive(Debug, Default)]
pub(super) struct Claims {
    told: HashMap<UpstreamId, BTreeMap<Rank, UpstreamSpec>>,
    /// Who is told to be there, and by whom.
    places: HashMap<Place, BTreeSet<(Rank, UpstreamId)>>,
    /// Whose word the board has.
    in_force: HashMap<UpstreamId, Rank>,
}

impl Claims {
    /// Whose word counts of this upstream.
    pub(super) fn owner(&self, id: &UpstreamId) -> Option<Rank> {
        self.in_force.get(id).copied()
    }

    /// Whether a source tells of this upstream, whether or not its word counts.
    pub(super) fn tells(&self, rank: Rank, id: &UpstreamId) -> bool {
        self.told.get(id).is_some_and(|told| told.contains_key(&rank))
    }

    /// Whether a source is believed in how an upstream is: not where it tells of another one under that name, or of none that
    /// counts.
    pub(super) fn believes(&self, rank: Rank, id: &UpstreamId) -> bool {
        !self.tells(rank, id) || self.owner(id) == Some(rank)
    }

    /// What it comes to for the board that a source tells this: who joins or changes first, then who leaves.
    pub(super) fn merge(&mut self, rank: Rank, event: StatusEvent) -> Vec<StatusEvent> {
        let (id, spec) = match event {
            StatusEvent::Upsert(spec) => (spec.id.clone(), Some(spec)),
            StatusEvent::Remove(id) => (id, None),
            other => return vec![other],
        };
        if spec.is_none() && !self.told.contains_key(&id) {
            // Perhaps the board had it before there were sources.
            return vec![StatusEvent::Remove(id)];
        }
        let ranks: Vec<Rank> = match (&spec, rank) {
            (None, HOST) => self.told[&id].keys().copied().collect(),
            _ => vec![rank],
        };
        let mut touched = BTreeSet::from([id.clone()]);
        for rank in ranks {
            self.tell(rank, &id, spec.clone(), &mut touched);
        }
        self.settle(touched, (&id, rank))
    }

    /// Notes what a source tells of an upstream; `None`: nothing any more. Adds to `touched` whoever may count now, or no more.
    fn tell(
        &mut self,
        rank: Rank,
        id: &UpstreamId,
        spec: Option<UpstreamSpec>,
        touched: &mut BTreeSet<UpstreamId>,
    ) {
        let told = self.told.entry(id.clone()).or_default();
        let now = spec.as_ref().and_then(UpstreamSpec::place);
        let before = match spec {
            Some(spec) => told.insert(rank, spec),
            None => told.remove(&rank),
        };
        let before = before.as_ref().and_then(UpstreamSpec::place);
        // Where others tell it to be it may count now, or no more.
        let elsewhere: Vec<_> = told.values().filter_map(UpstreamSpec::place).collect();
        if told.is_empty() {
            self.told.remove(id);
        }
        if let Some(place) = now.clone() {
            self.places.entry(place).or_default().insert((rank, id.clone()));
        }
        for place in before.iter().chain(&elsewhere) {
            let claims = self.places.get(place).into_iter();
            // Those of one source do not compete.
            let competing = claims.filter(|all| all.first().map(|one| one.0) != all.last().map(|one| one.0));
            touched.extend(competing.flatten().map(|(_, id)| id.clone()));
        }
        if let Some(place) = before.filter(|before| now.as_ref() != Some(before))
            && let Some(claims) = self.places.get_mut(&place)
        {
            claims.remove(&(rank, id.clone()));
            if claims.is_empty() {
                self.places.remove(&place);
            }
        }
    }

    /// The word that counts of it; `None`: nobody's, or it is another one that counts.
    fn counts(&self, id: &UpstreamId) -> Option<(Rank, &UpstreamSpec)> {
        let first = |id: &UpstreamId| {
            self.told
                .get(id)?
                .first_key_value()
                .map(|(rank, spec)| (*rank, spec))
        };
        let (rank, spec) = first(id)?;
        let Some(own) = spec.place() else {
            return Some((rank, spec));
        };
        let mut earlier = self
            .places
            .get(&own)
            .into_iter()
            .flatten()
            .take_while(|(other, _)| *other < rank);
        let is_there = |(other, id): &(Rank, UpstreamId)| first(id).is_some_and(|(first, _)| first == *other);
        (!earlier.any(is_there)).then_some((rank, spec))
    }

    fn settle(&mut self, touched: BTreeSet<UpstreamId>, (told, by): (&UpstreamId, Rank)) -> Vec<StatusEvent> {
        let (mut events, mut leave) = (Vec::new(), Vec::new());
        for id in touched {
            match self.counts(&id).map(|(rank, spec)| (rank, spec.clone())) {
                Some((rank, spec)) => {
                    let before = self.in_force.insert(id.clone(), rank);
                    if before != Some(rank) || (id == *told && rank == by) {
                        events.push(StatusEvent::Upsert(spec));
                    }
                }
                None if self.in_force.remove(&id).is_some() => {
                    if self.told.contains_key(&id) {
                        tracing::info!(upstream = %id, "is told by an earlier source under another name: that one counts");
                    }
                    leave.push(StatusEvent::Remove(id));
                }
                None => {}
            }
        }
        events.append(&mut leave);
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(id: &str, url: &str) -> UpstreamSpec {
        UpstreamSpec::new(id, format!("http://{url}")).unwrap()
    }

    fn id(id: &str) -> UpstreamId {
        UpstreamId::new(id).unwrap()
    }

    /// What the board is told, in short.
    fn short(events: Vec<StatusEvent>) -> Vec<String> {
        let each = events.into_iter().map(|event| match event {
            StatusEvent::Upsert(spec) => format!("+{} {}", spec.id, spec.url.trim_start_matches("http://")),
            StatusEvent::Remove(id) => format!("-{id}"),
            other => panic!("{other:?}"),
        });
        each.collect()
    }

    #[derive(Default)]
    struct Told(Claims);

    impl Told {
        fn says(&mut self, rank: Rank, name: &str, url: &str, expected: &[&str]) -> &mut Self {
            let events = self.0.merge(rank, StatusEvent::Upsert(spec(name, url)));
            assert_eq!(short(events), expected, "{rank} says {name} at {url}");
            self
        }

        fn drops(&mut self, rank: Rank, name: &str, expected: &[&str]) -> &mut Self {
            let events = self.0.merge(rank, StatusEvent::Remove(id(name)));
            assert_eq!(short(events), expected, "{rank} drops {name}");
            self
        }
    }

    #[test]
    fn the_earlier_source_counts_and_the_later_one_when_it_is_left() {
        let mut told = Told::default();
        told.says(2, "a", "x:1", &["+a x:1"])
            .says(1, "a", "x:2", &["+a x:2"])
            // Nobody hears it, and it is remembered.
            .says(2, "a", "x:3", &[])
            .drops(1, "a", &["+a x:3"])
            .says(1, "a", "x:2", &["+a x:2"])
            .drops(2, "a", &[])
            .drops(1, "a", &["-a"])
            // Who is unknown may have been there before.
            .drops(1, "a", &["-a"]);
        // Many at one place are no work where one source tells of them.
        for number in 0..20_000 {
            told.0
                .merge(2, StatusEvent::Upsert(spec(&format!("u{number}"), "x:1")));
        }
        for number in 0..20_000 {
            told.0.merge(2, StatusEvent::Remove(id(&format!("u{number}"))));
        }
        assert!(told.0.told.is_empty() && told.0.places.is_empty() && told.0.in_force.is_empty());
    }

    #[test]
    fn one_place_under_two_names_is_one_upstream() {
        let mut told = Told::default();
        told.says(2, "10.0.0.1:80", "10.0.0.1:80", &["+10.0.0.1:80 10.0.0.1:80"])
            .says(1, "gpu", "10.0.0.1:80", &["+gpu 10.0.0.1:80", "-10.0.0.1:80"])
            .says(2, "10.0.0.1:80", "10.0.0.1:80", &[])
            // It moves away, and the other is there again.
            .says(
                1,
                "gpu",
                "10.0.0.2:80",
                &["+10.0.0.1:80 10.0.0.1:80", "+gpu 10.0.0.2:80"],
            )
            .says(1, "gpu", "10.0.0.1:80", &["+gpu 10.0.0.1:80", "-10.0.0.1:80"])
            .drops(1, "gpu", &["+10.0.0.1:80 10.0.0.1:80", "-gpu"]);
        // One source may have its reasons to name one place twice.
        told.says(3, "one", "y:1", &["+one y:1"])
            .says(3, "two", "y:1", &["+two y:1"]);
        assert!(told.0.believes(3, &id("one")) && told.0.believes(1, &id("one")));
        told.says(1, "one", "z:1", &["+one z:1"]);
        assert!(!told.0.believes(3, &id("one")), "it tells of another one");
    }

    #[test]
    fn the_hosts_word_is_the_last() {
        let mut told = Told::default();
        told.says(1, "a", "x:1", &["+a x:1"])
            .says(HOST, "a", "x:2", &["+a x:2"])
            .drops(HOST, "a", &["-a"])
            .says(1, "a", "x:1", &["+a x:1"]);
    }

    /// What should be on the board, found from all that was told in another way.
    fn model(told: &[(Rank, UpstreamSpec)]) -> BTreeMap<UpstreamId, String> {
        let first = |id: &UpstreamId| {
            told.iter()
                .filter(|(_, spec)| spec.id == *id)
                .map(|(rank, _)| *rank)
                .min()
        };
        let firsts = || told.iter().filter(|(rank, spec)| first(&spec.id) == Some(*rank));
        let counts = |(rank, spec): &&(Rank, UpstreamSpec)| {
            !firsts().any(|(other, at)| other < rank && at.url == spec.url)
        };
        firsts()
            .filter(counts)
            .map(|(_, spec)| (spec.id.clone(), spec.url.clone()))
            .collect()
    }

    proptest::proptest! {
        #[test]
        fn the_board_has_what_counts_whatever_is_told_in_whatever_order(
            steps in proptest::collection::vec((1..4_usize, 0..4_u8, proptest::option::of(0..3_u8)), 1..60),
        ) {
            let (mut claims, mut told, mut board) = (Claims::default(), Vec::new(), BTreeMap::new());
            for (rank, name, at) in steps {
                let name = format!("u{name}");
                told.retain(|(other, spec): &(Rank, UpstreamSpec)| (*other, spec.id.as_str()) != (rank, &name));
                let event = match at {
                    Some(at) => {
                        let spec = spec(&name, &format!("h{at}:1"));
                        told.push((rank, spec.clone()));
                        StatusEvent::Upsert(spec)
                    }
                    None => StatusEvent::Remove(id(&name)),
                };
                for event in claims.merge(rank, event) {
                    match event {
                        StatusEvent::Upsert(spec) => drop(board.insert(spec.id.clone(), spec.url)),
                        StatusEvent::Remove(id) => drop(board.remove(&id)),
                        other => panic!("{other:?}"),
                    }
                }
                assert_eq!(board, model(&told));
            }
        }
    }
}
