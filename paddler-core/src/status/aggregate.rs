//! How are all upstreams together, as if they were one?
//!
//! A router tells this to a router in front of it, which treats it as an engine: its room is the sum of theirs, and whoever
//! waits here is its queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Adapters, Entry, Health, ModelRoom, Report, Signal, Snapshot};
use crate::upstream::{Abilities, Capability, LANES, ModelEntry, Models, UpstreamIndex, is_in, upstreams};

impl Snapshot {
    /// What all upstreams come to. `queued`: the requests that wait here for one of them. Together they load until it was heard of one
    /// that it is able to serve, as one engine does until its model is there.
    ///
    /// Room and load are those of the upstreams that are sent work now: neither drained, nor ejected, nor unable by their own
    /// word. Load is what they reported, corrected by our own requests. Where one of them does not say how much room it has,
    /// that of all is unknown: such a fleet is sent what comes, and lets it wait. Where they serve different models, room is told by
    /// model ([`Report::rooms`]). The KV cache is the mean of those who tell it: a router in front compares fleets by
    /// it, and within this one the emptiest is found here. Models are those of all, and what they can do is what one of all
    /// can, whether or not they can serve now, since who asks for it waits for it.
    ///
    /// ```
    /// use paddler_core::Moment;
    /// use paddler_core::schedule::trees;
    /// use paddler_core::status::{Health, StatusBoard, StatusEvent};
    /// use paddler_core::upstream::UpstreamSpec;
    ///
    /// let mut board = StatusBoard::new(trees::gateway());
    /// for id in ["gpu-1", "gpu-2"] {
    ///     let spec = UpstreamSpec::new(id, "http://127.0.0.1:8080")?.max_in_flight(4);
    ///     board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
    /// }
    /// let fleet = board.publish(Moment::ZERO).aggregate(3);
    /// assert_eq!((fleet.slots_total, fleet.slots_busy, fleet.waiting), (Some(8), Some(0), Some(3)));
    /// assert_eq!(fleet.health, Some(Health::Ready));
    /// # Ok::<(), paddler_core::upstream::InvalidId>(())
    /// ```
    pub fn aggregate(&self, queued: u32) -> Report {
        let mut usable: Vec<_> = self.askable().filter(|(at, _)| self.is_sent_work(*at)).collect();
        let health = if usable.is_empty() {
            Health::Failing
        } else if usable.iter().all(|(at, _)| self.is_awaited(at.0)) {
            Health::Loading
        } else {
            Health::Ready
        };
        // Who was never heard from is passed over by the trees, too, unless nobody was.
        let known = |entry: &Entry| entry.report().is_some() || entry.limit().is_some();
        if usable.iter().any(|(_, entry)| known(entry)) {
            usable.retain(|(_, entry)| known(entry));
        }
        let mut report = Report::new();
        report.health = Some(health);
        self.load(&usable, queued, &mut report);
        report.kv_cache_usage = kv_cache(&usable);
        report.adapters = adapters(&usable);
        report.abilities = self.abilities();
        if report.slots_total.or(report.max_sequences).is_none() {
            report.rooms = self.rooms(&usable);
        }
        self.told_models(&mut report);
        report
    }

    /// Who can be asked for by name: nobody who is only fallen back to.
    fn askable(&self) -> impl Iterator<Item = (UpstreamIndex, &Arc<Entry>)> {
        let reached = self.columns.reached(true, false);
        self.iter().filter(move |(at, _)| reached.has(*at))
    }

    /// The room for each model, where all who have it tell theirs. Models that the same engines have share one.
    fn rooms(&self, usable: &[(UpstreamIndex, &Arc<Entry>)]) -> Vec<ModelRoom> {
        let mut rooms: BTreeMap<Vec<(usize, usize)>, ModelRoom> = BTreeMap::new();
        let any = |(_, entry): &(_, &Arc<Entry>)| matches!(entry.models(), Some(Models::Any));
        if usable.iter().any(any) {
            // Whatever is asked for may go there, too.
            return Vec::new();
        }
        // Most models have few upstreams: of each, those alone are gone through that have it.
        let mut whole: Vec<Option<(&Entry, Option<_>)>> = vec![None; self.entries.len()];
        for (at, entry) in usable {
            let load = self.ledger.own_load(*at).weight.saturating_add(entry.others());
            whole[at.get()] = Some((entry, entry.limit().map(|limit| (usize::MAX, limit, load))));
        }
        for (name, row) in self.models() {
            let (mut of, mut all) = (Vec::new(), Some((0u32, 0u32)));
            let places = places(&row.serves).filter_map(|at| Some((at, (*whole.get(at)?)?)));
            for (at, (entry, whole)) in places {
                let own = entry.rooms.of(name).or(whole);
                of.extend(own.map(|(room, ..)| (at, room)));
                all = all.zip(own).map(|((limit, load), (_, own, open))| {
                    (limit.saturating_add(own), load.saturating_add(open))
                });
            }
            if let Some((limit, load)) = all.filter(|_| !of.is_empty()) {
                let room = rooms.entry(of).or_default();
                (room.limit, room.load) = (limit, load);
                room.models.push(name.into());
            }
        }
        let mut rooms: Vec<_> = rooms.into_values().collect();
        rooms.iter_mut().for_each(|room| room.models.sort_unstable());
        rooms
    }

    /// What one of them can do is what all can: who asks for it waits for that one. Only what none can is told to be so, and no
    /// context where one does not tell its own.
    fn abilities(&self) -> Abilities {
        let mut abilities = Abilities::default();
        for what in Capability::ALL {
            let mut each = self.askable().map(|(_, entry)| entry.can(*what));
            // Not known is above no, and below yes.
            let best = each.try_fold(Some(false), |best, can| match (best, can) {
                (_, Some(true)) => Err(()),
                (Some(false), Some(false)) => Ok(Some(false)),
                _ => Ok(None),
            });
            let can = best
                .unwrap_or(Some(true))
                .filter(|can| *can || self.askable().next().is_some());
            abilities.can.extend(can.map(|can| (*what, can)));
        }
        let contexts = self.askable().map(|(_, entry)| entry.context());
        let contexts: Option<Vec<_>> = contexts.collect();
        abilities.context = contexts.and_then(|all| all.into_iter().max());
        abilities
    }

    fn is_sent_work(&self, at: UpstreamIndex) -> bool {
        // Who is probed is shut while the probe is under way, and open after it.
        let marks = self.ledger.marks(at.get() / LANES);
        let shut = (marks.shut & !marks.probing) | marks.drained;
        self.is_able(at.0) && !is_in(shut, at.get())
    }

    fn load(&self, usable: &[(UpstreamIndex, &Arc<Entry>)], queued: u32, report: &mut Report) {
        let (mut room, mut running, mut waiting) = (Some(0u32), 0u32, queued);
        let mut in_slots = true;
        for (at, entry) in usable {
            let load = self.ledger.own_load(*at).weight.saturating_add(entry.others());
            // Nobody gets more than the limit; who has none, and no room, takes all at once.
            let own = [entry.room(), entry.limit()].into_iter().flatten().min();
            let runs = load.min(own.unwrap_or(u32::MAX));
            running = running.saturating_add(runs);
            waiting = waiting.saturating_add(load - runs);
            room = room.zip(own).map(|(all, own)| all.saturating_add(own));
            in_slots &= entry.limit() == own;
        }
        report.waiting = Some(waiting);
        // Of room for different models no sum can be told: that for one of them would seem to be there for the others.
        let room = room.filter(|_| serve_the_same(usable));
        if in_slots && !usable.is_empty() {
            (report.slots_total, report.slots_busy) = (room, room.map(|_| running));
        } else {
            report.max_sequences = room.filter(|_| !usable.is_empty());
        }
        report.running = Some(running);
    }

    fn told_models(&self, report: &mut Report) {
        let any = |(_, entry): (_, &Arc<Entry>)| entry.models() == Some(&Models::Any);
        if self.askable().any(any) {
            report.models = Some(Models::Any);
            return;
        }
        let reached = self.models().filter(|(_, row)| self.is_reached(row));
        let rows: BTreeMap<_, _> = reached.collect();
        let entry = |(name, row): (&str, &super::ModelRow)| match row.parent() {
            Some(parent) => ModelEntry::adapter(name, parent),
            None => ModelEntry::new(name),
        };
        report.models = Some(Models::Listed(rows.into_iter().map(entry).collect()));
        if !self.models_complete() {
            let found = if self.is_empty() {
                "there is none"
            } else {
                "not all have told theirs"
            };
            report.degrade(Signal::Models, "all upstreams", found);
        }
    }
}

/// The places whose bits are set, in their order.
fn places(bits: &[u64]) -> impl Iterator<Item = usize> {
    let each = bits.iter().enumerate();
    each.flat_map(|(word, bits)| upstreams(word, *bits).map(UpstreamIndex::get))
}

/// Whether each of them serves the same models under the same names.
fn serve_the_same(usable: &[(UpstreamIndex, &Arc<Entry>)]) -> bool {
    fn names(models: &Models) -> Option<BTreeSet<&str>> {
        let Models::Listed(models) = models else {
            return None;
        };
        let each = models
            .iter()
            .flat_map(|model| model.aliases.iter().chain([&model.id]));
        Some(each.map(|name| &**name).collect())
    }
    let mut each = usable.iter().map(|(_, entry)| entry.models().map(names));
    let first = each.next();
    each.all(|other| Some(&other) == first.as_ref())
}

fn kv_cache(usable: &[(UpstreamIndex, &Arc<Entry>)]) -> Option<f64> {
    let usages = usable
        .iter()
        .filter_map(|(_, entry)| entry.report()?.kv_cache_usage);
    let (sum, many) = usages
        .filter(|usage| usage.is_finite())
        .fold((0.0, 0u32), |(sum, many), usage| (sum + usage, many + 1));
    (many > 0).then(|| sum / f64::from(many))
}

fn adapters(usable: &[(UpstreamIndex, &Arc<Entry>)]) -> Option<Adapters> {
    let told: Vec<&Adapters> = usable
        .iter()
        .filter_map(|(_, entry)| entry.report()?.adapters.as_ref())
        .collect();
    let names = |of: fn(&Adapters) -> &[Arc<str>]| {
        let all: BTreeSet<_> = told.iter().flat_map(|each| of(each)).cloned().collect();
        all.into_iter().collect()
    };
    let max = told
        .iter()
        .try_fold(0u32, |sum, each| Some(sum.saturating_add(each.max?)));
    (!told.is_empty()).then(|| Adapters {
        max,
        running: names(|each| &each.running),
        waiting: names(|each| &each.waiting),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;
    use crate::request::Facts;
    use crate::schedule::{Ask, Scratch, trees};
    use crate::status::{StatusBoard, StatusEvent};
    use crate::upstream::UpstreamSpec;

    fn spec(id: &str) -> UpstreamSpec {
        UpstreamSpec::new(id, "http://127.0.0.1:1").unwrap()
    }

    fn board(each: impl IntoIterator<Item = (UpstreamSpec, Report)>) -> StatusBoard {
        let mut board = StatusBoard::new(trees::gateway());
        for (spec, report) in each {
            let id = spec.id.clone();
            board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
            let sample = None;
            board.apply(StatusEvent::Report { id, report, sample }, Moment::ZERO);
        }
        board
    }

    fn report(fill: impl FnOnce(&mut Report)) -> Report {
        let mut report = Report::new();
        fill(&mut report);
        report
    }

    fn slots(total: u32, busy: u32) -> Report {
        report(|report| (report.slots_total, report.slots_busy) = (Some(total), Some(busy)))
    }

    #[test]
    fn room_and_load_are_the_sums_of_those_who_are_sent_work() {
        let loading = report(|report| {
            (report.slots_total, report.health) = (Some(99), Some(Health::Loading));
        });
        let each = [
            (spec("a"), slots(4, 1)),
            (spec("b"), slots(4, 4)),
            (spec("loads"), loading),
            (spec("drained"), slots(50, 0)),
        ];
        let mut board = board(each);
        let snapshot = board.publish(Moment::ZERO);
        board.set_draining("drained", true);
        let facts = Facts::new();
        let ask = Ask::new(&facts, Moment::ZERO, 1);
        let lease = snapshot.reserve(&ask, &mut Scratch::default(), &mut ()).unwrap();
        let fleet = snapshot.aggregate(2);
        assert_eq!(
            (fleet.slots_total, fleet.slots_busy),
            (Some(8), Some(6)),
            "ours counts at once"
        );
        assert_eq!((fleet.running, fleet.waiting), (Some(6), Some(2)));
        drop(lease);
    }

    #[test]
    fn where_one_does_not_say_how_much_room_it_has_all_is_unknown() {
        let fleet = board([(spec("a"), slots(4, 0)), (spec("b"), Report::new())])
            .publish(Moment::ZERO)
            .aggregate(0);
        assert_eq!(
            (fleet.slots_total, fleet.max_sequences, fleet.slots_busy),
            (None, None, None)
        );
        assert_eq!(fleet.health, Some(Health::Ready));
    }

    #[test]
    fn sequences_are_told_as_such_and_what_is_beyond_them_waits() {
        let vllm = |running, waiting| {
            report(|report| {
                report.max_sequences = Some(8);
                (report.running, report.waiting) = (Some(running), Some(waiting));
            })
        };
        let fleet = board([(spec("a"), vllm(8, 3)), (spec("b"), vllm(1, 0))])
            .publish(Moment::ZERO)
            .aggregate(1);
        assert_eq!((fleet.slots_total, fleet.max_sequences), (None, Some(16)));
        assert_eq!((fleet.running, fleet.waiting), (Some(9), Some(4)));
    }

    #[test]
    fn nobody_is_failing_and_no_room_is_said() {
        let fleet = board([]).publish(Moment::ZERO).aggregate(0);
        assert_eq!(fleet.health, Some(Health::Failing));
        assert_eq!((fleet.slots_total, fleet.max_sequences), (None, None));
    }

    #[test]
    fn where_they_serve_different_models_room_is_told_by_model() {
        let serving = |models: &[&str], slots: Option<(u32, u32)>| {
            let models = models.iter().map(|name| ModelEntry::new(*name)).collect();
            let (total, busy) = slots.unzip();
            report(|report| {
                report.models = Some(Models::Listed(models));
                (report.slots_total, report.slots_busy) = (total, busy);
            })
        };
        let room = |models: &[&str], limit, load| ModelRoom {
            models: models.iter().map(|name| (*name).into()).collect(),
            limit,
            load,
        };
        let mut behind = board([
            (spec("a"), serving(&["m"], Some((4, 1)))),
            (spec("b"), serving(&["m", "x", "y"], Some((2, 2)))),
            (spec("c"), serving(&["n"], None)),
            (spec("d"), serving(&["m"], Some((9, 0)))),
        ]);
        behind.set_draining("d", true);
        let fleet = behind.publish(Moment::ZERO).aggregate(0);
        let told = vec![room(&["m"], 6, 3), room(&["x", "y"], 2, 2)];
        assert_eq!((fleet.slots_total, &fleet.rooms), (None, &told));

        // In front of it that is its room, and two that have some for one model have the sum.
        let mut front = board([(spec("fleet"), fleet), (spec("e"), serving(&["m"], Some((3, 0))))]);
        let snapshot = front.publish(Moment::ZERO);
        let told = vec![room(&["m"], 9, 3), room(&["x", "y"], 2, 2)];
        assert_eq!(snapshot.aggregate(0).rooms, told);
        let model = |name| {
            let mut facts = Facts::new();
            facts.model = Some(name);
            facts
        };
        let reserve = |name| {
            let facts = model(name);
            let ask = Ask::new(&facts, Moment::ZERO, 1);
            snapshot.reserve(&ask, &mut Scratch::default(), &mut ())
        };
        assert!(reserve("x").is_err(), "others have it all");
        let leases: Vec<_> = (0..7).map_while(|_| reserve("m").ok()).collect();
        assert_eq!(leases.len(), 6, "three there and three here");
        assert!(reserve("n").is_ok(), "of which nothing is told");
        drop(leases);
        assert!(reserve("m").is_ok());

        // Whoever serves anything may serve this, too.
        behind.apply(StatusEvent::Upsert(spec("any").models(Models::Any)), Moment::ZERO);
        let any = StatusEvent::Report {
            id: spec("any").id,
            report: slots(1, 0),
            sample: None,
        };
        behind.apply(any, Moment::ZERO);
        assert!(behind.publish(Moment::ZERO).aggregate(0).rooms.is_empty());
    }

    #[test]
    fn what_one_of_them_can_all_can_and_what_is_not_known_is_not_told() {
        let can = |id: &str, can: &[(Capability, bool)], context: Option<u32>| {
            let mut spec = spec(id);
            spec.abilities.can = can.iter().copied().collect();
            spec.abilities.context = context;
            (spec, Report::new())
        };
        use Capability::{Audio, Chat, Embeddings, Vision};
        let told = |each: Vec<_>| board(each).publish(Moment::ZERO).aggregate(0).abilities;
        let seer = can(
            "seer",
            &[(Chat, true), (Vision, true), (Audio, false)],
            Some(8_192),
        );
        let reader = can(
            "reader",
            &[(Chat, true), (Vision, false), (Audio, false)],
            Some(131_072),
        );
        let both = told(vec![seer.clone(), reader.clone()]);
        assert_eq!(both.can, [(Chat, true), (Vision, true), (Audio, false)].into());
        assert_eq!(both.context, Some(131_072));
        // What one does not say may be so.
        let silent = can("silent", &[(Embeddings, false)], None);
        let three = told(vec![seer, silent, reader.clone()]);
        assert_eq!(
            (three.can, three.context),
            ([(Chat, true), (Vision, true)].into(), None)
        );
        let mut away = board([reader]);
        away.set_draining("reader", true);
        assert_eq!(
            away.publish(Moment::ZERO).aggregate(0).abilities.context,
            Some(131_072)
        );
        assert_eq!(
            told(Vec::new()),
            Abilities::default(),
            "of nobody nothing is known"
        );
    }

    #[test]
    fn models_adapters_and_kv_cache_are_those_of_all() {
        let with = |models: &[&str], adapter: &str, kv| {
            let entries = models.iter().map(|name| ModelEntry::new(*name)).collect();
            report(|report| {
                report.models = Some(Models::Listed(entries));
                report.kv_cache_usage = Some(kv);
                report.adapters = Some(Adapters {
                    max: Some(2),
                    running: vec![adapter.into()],
                    waiting: Vec::new(),
                });
            })
        };
        let mut board = board([
            (spec("a"), with(&["m", "n"], "x", 0.25)),
            (spec("b"), with(&["m"], "y", 0.75)),
        ]);
        let fleet = board.publish(Moment::ZERO).aggregate(0);
        let listed = |names: &[&str]| {
            Some(Models::Listed(
                names.iter().map(|n| ModelEntry::new(*n)).collect(),
            ))
        };
        assert_eq!(
            (fleet.models, fleet.kv_cache_usage),
            (listed(&["m", "n"]), Some(0.5))
        );
        let adapters = fleet.adapters.unwrap();
        assert_eq!(
            (adapters.max, adapters.running),
            (Some(4), vec!["x".into(), "y".into()])
        );
        assert!(fleet.degraded.is_empty());

        board.apply(StatusEvent::Upsert(spec("silent")), Moment::ZERO);
        let fleet = board.publish(Moment::ZERO).aggregate(0);
        assert_eq!(fleet.models, listed(&["m", "n"]));
        assert_eq!(fleet.degraded[0].signal, Signal::Models);
        board.apply(StatusEvent::Upsert(spec("any").models(Models::Any)), Moment::ZERO);
        assert_eq!(board.publish(Moment::ZERO).aggregate(0).models, Some(Models::Any));
    }
}
