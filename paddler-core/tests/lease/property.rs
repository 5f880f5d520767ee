//! Do the counters equal those of a simple model, after any sequence of steps?
//!
//! The model keeps a list of everything that is open or settles and adds it up each time. Time moves in steps of 4 ms,
//! the grain of youth, so that the model can say exactly what is young.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use paddler_core::Moment;
use paddler_core::status::{Applied, Snapshot, StatusEvent};
use paddler_core::upstream::{Lease, SampleToken, UpstreamIndex};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::pool::{Pool, SETTLE, facts, id, report};

const NAMES: [&str; 3] = ["a", "b", "c"];
const YOUNG_STEPS: u64 = 5;

#[derive(Debug, Clone)]
enum Step {
    Join(usize, Option<u32>),
    Leave(usize),
    /// Upstream, which of the snapshots (0 is the newest), weight, adapter.
    Reserve(usize, usize, u32, bool),
    Sent(usize),
    FirstByte(usize),
    Complete(usize),
    Drop(usize),
    /// Lease, which of the snapshots, upstream.
    Move(usize, usize, usize),
    Sample(usize),
    /// Upstream, which of the samples (none: unasked), slots, running, waiting.
    Report(usize, Option<usize>, Option<u32>, Option<u32>, Option<u32>),
    Wait(u64),
    Expire,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (who, when) = (0..NAMES.len(), 0..4usize);
    let which = 0..8usize;
    let weight = prop_oneof![4 => 0..4u32, 1 => 4..12u32, 1 => Just(u32::MAX)];
    let step = prop_oneof![
        2 => (who.clone(), prop::option::of(0..8u32)).prop_map(|(who, limit)| Step::Join(who, limit)),
        1 => who.clone().prop_map(Step::Leave),
        8 => (who.clone(), when.clone(), weight, any::<bool>())
            .prop_map(|(who, when, weight, adapter)| Step::Reserve(who, when, weight, adapter)),
        3 => which.clone().prop_map(Step::Sent),
        2 => which.clone().prop_map(Step::FirstByte),
        2 => which.clone().prop_map(Step::Complete),
        3 => which.clone().prop_map(Step::Drop),
        2 => (which.clone(), when, who.clone()).prop_map(|(which, when, who)| Step::Move(which, when, who)),
        3 => who.clone().prop_map(Step::Sample),
        4 => (
            who,
            prop::option::weighted(0.8, which),
            prop::option::of(0..8u32),
            prop::option::weighted(0.9, 0..8u32),
            prop::option::of(0..3u32)
        )
            .prop_map(|(who, which, slots, running, waiting)| Step::Report(who, which, slots, running, waiting)),
        3 => (1..8u64).prop_map(Step::Wait),
        1 => Just(Step::Wait(1_500)),
        2 => Just(Step::Expire),
    ];
    prop::collection::vec(step, 1..150)
}

/// What is known of one tenancy: the time from an upstream's joining to its leaving.
#[derive(Debug, Clone)]
struct Tenancy {
    name: usize,
    /// Known once it was published.
    place: Option<UpstreamIndex>,
    here: bool,
    spec_limit: Option<u32>,
    slots: Option<u32>,
    others: u32,
    last_sample: u64,
}

impl Tenancy {
    fn limit(&self) -> Option<u32> {
        Some(self.spec_limit.or(self.slots)?.saturating_sub(self.others))
    }
}

#[derive(Debug)]
struct Open {
    tenancy: usize,
    asked: u32,
    weight: u32,
    adapter: bool,
    prompt: bool,
    sent: bool,
    born: u64,
    lease: Lease,
}

#[derive(Debug)]
struct Settling {
    tenancy: usize,
    weight: u32,
    after: u64,
    deadline: Option<Moment>,
}

struct Sampled {
    tenancy: usize,
    token: SampleToken,
    sequence: u64,
    own: u32,
    settling: u32,
}

struct Model {
    pool: Pool,
    /// Each with the tenancy of each name in it. The newest first.
    snapshots: Vec<(Arc<Snapshot>, [Option<usize>; NAMES.len()])>,
    tenancies: Vec<Tenancy>,
    open: Vec<Open>,
    settling: Vec<Settling>,
    samples: Vec<Sampled>,
    sequence: u64,
    told: Arc<AtomicU32>,
    /// Whether this step must have told those who wait.
    freed: bool,
}

impl Model {
    fn new() -> Self {
        let pool = Pool::new(&[]);
        let told = Arc::new(AtomicU32::new(0));
        let hook = told.clone();
        pool.snapshot.ledger().on_freed(move || {
            hook.fetch_add(1, Relaxed);
        });
        Self {
            snapshots: vec![(pool.snapshot.clone(), [None; NAMES.len()])],
            pool,
            tenancies: Vec::new(),
            open: Vec::new(),
            settling: Vec::new(),
            samples: Vec::new(),
            sequence: 0,
            told,
            freed: false,
        }
    }

    fn tenant(&self, name: usize) -> Option<usize> {
        self.snapshots[0].1[name]
    }

    fn age(&self) -> u64 {
        self.pool.now.as_nanos() / 4_000_000
    }

    fn settling_at(&self, tenancy: usize) -> u32 {
        let here = self.settling.iter().filter(|one| one.tenancy == tenancy);
        here.map(|one| one.weight).sum()
    }

    fn weight(&self, tenancy: usize) -> u32 {
        let here = self.open.iter().filter(|one| one.tenancy == tenancy);
        here.map(|one| one.weight).sum::<u32>() + self.settling_at(tenancy)
    }

    fn seen(&self, tenancy: usize) -> u32 {
        let young = |one: &&Open| one.tenancy == tenancy && self.age() - one.born <= YOUNG_STEPS;
        self.weight(tenancy) - self.open.iter().filter(young).map(|one| one.weight).sum::<u32>()
    }

    fn event(&mut self, event: StatusEvent) -> Applied {
        let applied = self.pool.board.apply(event, self.pool.now);
        // The hook was told of what the event freed, before the publish tells it too.
        self.check_told();
        self.pool.snapshot = self.pool.board.publish(self.pool.now);
        let mut tenants = self.snapshots[0].1;
        for (name, tenant) in tenants.iter_mut().enumerate() {
            *tenant = self.tenancies.iter().position(|one| one.here && one.name == name);
        }
        self.snapshots.insert(0, (self.pool.snapshot.clone(), tenants));
        self.snapshots.truncate(4);
        applied
    }

    fn check_told(&mut self) {
        if std::mem::take(&mut self.freed) {
            assert!(self.told.load(Relaxed) > 0, "those who wait were not told");
        }
    }

    fn join(&mut self, name: usize, limit: Option<u32>) {
        let spec = crate::pool::spec(NAMES[name], limit);
        let unlimited = |limit: Option<u32>| limit.unwrap_or(u32::MAX);
        if let Some(tenancy) = self.tenant(name) {
            let before = self.tenancies[tenancy].limit();
            let known = std::mem::replace(&mut self.tenancies[tenancy].spec_limit, limit);
            self.freed = unlimited(self.tenancies[tenancy].limit()) > unlimited(before);
            let id = id(NAMES[name]);
            let applied = if known == limit {
                Applied::Unchanged(id)
            } else {
                Applied::Changed(id)
            };
            assert_eq!(self.event(StatusEvent::Upsert(spec)), applied);
            return;
        }
        self.tenancies.push(Tenancy {
            name,
            place: None,
            here: true,
            spec_limit: limit,
            slots: None,
            others: 0,
            last_sample: 0,
        });
        assert_eq!(
            self.event(StatusEvent::Upsert(spec)),
            Applied::Joined(id(NAMES[name]))
        );
        let place = self.pool.snapshot.index(NAMES[name]);
        assert!(place.is_some());
        let before = self.tenancies.len() - 1;
        for (tenancy, one) in self.tenancies[..before].iter().enumerate() {
            if one.place == place {
                assert!(
                    !one.here && self.is_quiet(tenancy),
                    "a place that is in use was given away"
                );
            }
        }
        self.tenancies[before].place = place;
    }

    fn is_quiet(&self, tenancy: usize) -> bool {
        self.weight(tenancy) == 0 && self.open.iter().all(|one| one.tenancy != tenancy)
    }

    fn leave(&mut self, name: usize) {
        let gone = self.tenant(name);
        let applied = match gone {
            Some(tenancy) => {
                self.tenancies[tenancy].here = false;
                Applied::Left(id(NAMES[name]))
            }
            None => Applied::Unknown(id(NAMES[name])),
        };
        assert_eq!(self.event(StatusEvent::Remove(id(NAMES[name]))), applied);
    }

    fn reserve(&mut self, name: usize, snapshot: usize, asked: u32, adapter: bool) {
        let (snapshot, tenants) = &self.snapshots[snapshot % self.snapshots.len()];
        let Some(index) = snapshot.index(NAMES[name]) else {
            return;
        };
        let tenancy = tenants[name].unwrap();
        let mut facts = facts(asked);
        facts.model = adapter.then_some("red");
        let lease = snapshot.lease(index, &facts, self.pool.now);
        let here = self.tenancies[tenancy].here;
        // As much as it runs at once, whoever else is there.
        let most = snapshot.entry(index).unwrap().limit().unwrap_or(u32::MAX);
        let open = self.weight(tenancy);
        let counted = asked.min(most.max(1));
        let taken = Some(counted.min((1 << 24) - 1 - open));
        let weight = match self.tenancies[tenancy].limit() {
            _ if !here => None,
            _ if asked == 0 => Some(0),
            None => taken,
            Some(limit) if (open == 0 && limit > 0) || open.saturating_add(counted) <= limit => taken,
            Some(_) => None,
        };
        assert_eq!(
            lease.as_ref().map(Lease::weight),
            weight,
            "{:?}",
            self.tenancies[tenancy]
        );
        self.open.extend(lease.map(|lease| Open {
            tenancy,
            asked,
            weight: lease.weight(),
            adapter,
            prompt: true,
            sent: false,
            born: self.age(),
            lease,
        }));
    }

    fn lease(&mut self, which: usize) -> Option<&mut Open> {
        let count = self.open.len();
        (count > 0).then(|| &mut self.open[which % count])
    }

    fn end(&mut self, which: usize, complete: bool) {
        if self.open.is_empty() {
            return;
        }
        let one = self.open.swap_remove(which % self.open.len());
        if complete {
            self.freed = true;
            one.lease.complete();
        } else {
            self.freed = !one.sent;
            drop(one.lease);
            if one.sent && one.weight > 0 {
                self.settling.push(Settling {
                    tenancy: one.tenancy,
                    weight: one.weight,
                    after: self.sequence,
                    deadline: None,
                });
            }
        }
    }

    fn move_to(&mut self, which: usize, snapshot: usize, name: usize) {
        if self.open.is_empty() {
            return;
        }
        let which = which % self.open.len();
        let (snapshot, tenants) = &self.snapshots[snapshot % self.snapshots.len()];
        let Some(index) = snapshot.index(NAMES[name]) else {
            return;
        };
        let tenancy = tenants[name].unwrap();
        let room = (1 << 24) - 1 - self.weight(tenancy);
        let one = &mut self.open[which];
        let moved = one.lease.move_to(snapshot, index);
        let from = &self.tenancies[one.tenancy];
        if from.place == Some(index) && from.name == name {
            assert_eq!(moved, Ok(()), "it is there already");
        } else if self.tenancies[tenancy].here {
            assert_eq!(moved, Ok(()));
            one.tenancy = tenancy;
            one.weight = one.asked.min(room);
            self.freed = true;
        } else {
            assert_eq!(moved, Err(index), "who has left takes nobody");
        }
        let now_at = NAMES[self.tenancies[one.tenancy].name];
        assert_eq!(
            (one.lease.upstream().as_str(), one.lease.weight()),
            (now_at, one.weight)
        );
    }

    fn sample(&mut self, name: usize) {
        let Some(tenancy) = self.tenant(name) else { return };
        self.sequence += 1;
        let token = self.pool.sample(NAMES[name]);
        let (own, settling) = (self.seen(tenancy), self.settling_at(tenancy));
        assert_eq!((token.own_weight(), token.at()), (own, self.pool.now));
        self.samples.push(Sampled {
            tenancy,
            token,
            sequence: self.sequence,
            own,
            settling,
        });
    }

    fn report(
        &mut self,
        name: usize,
        which: Option<usize>,
        slots: Option<u32>,
        running: Option<u32>,
        waiting: Option<u32>,
    ) {
        let sampled = which
            .filter(|_| !self.samples.is_empty())
            .map(|which| which % self.samples.len());
        let event = StatusEvent::Report {
            id: id(NAMES[name]),
            report: report(slots, running, waiting),
            sample: sampled.map(|which| self.samples[which].token),
        };
        let Some(tenancy) = self.tenant(name) else {
            assert!(matches!(self.event(event), Applied::Unknown(_)));
            return;
        };
        let stale = sampled.is_some_and(|which| {
            let sampled = &self.samples[which];
            sampled.tenancy != tenancy || sampled.sequence < self.tenancies[tenancy].last_sample
        });
        if stale {
            assert!(matches!(self.event(event), Applied::Overtaken(_)));
            return;
        }
        let (sequence, own) = match sampled {
            Some(which) => (self.samples[which].sequence, self.samples[which].own),
            None => {
                self.sequence += 1;
                (self.sequence, self.seen(tenancy))
            }
        };
        let load = running.map(|running| running + waiting.unwrap_or(0));
        let before = self.tenancies[tenancy].limit().unwrap_or(u32::MAX);
        let one = &mut self.tenancies[tenancy];
        one.slots = slots;
        one.others = load.map_or(0, |load| load.saturating_sub(own));
        one.last_sample = sequence;
        self.freed = one.limit().unwrap_or(u32::MAX) > before;
        if let (Some(which), Some(load)) = (sampled, load) {
            self.confirm(tenancy, which, load);
        }
        assert!(matches!(self.event(event), Applied::Reported { .. }));
        assert_eq!(self.pool.others(NAMES[name]), self.tenancies[tenancy].others);
    }

    fn confirm(&mut self, tenancy: usize, which: usize, load: u32) {
        let sampled = &self.samples[which];
        let ghosts = load.saturating_sub(sampled.own.saturating_sub(sampled.settling));
        let ended: Vec<_> = (0..self.settling.len())
            .filter(|at| self.settling[*at].tenancy == tenancy && self.settling[*at].after < sampled.sequence)
            .collect();
        let mut held: u32 = ended.iter().map(|at| self.settling[*at].weight).sum();
        for at in ended {
            let part = self.settling[at].weight.min(held.saturating_sub(ghosts));
            self.settling[at].weight -= part;
            held -= part;
            self.freed |= part > 0;
        }
        self.settling.retain(|one| one.weight > 0);
    }

    fn expire(&mut self) {
        let now = self.pool.now;
        for one in &mut self.settling {
            one.deadline.get_or_insert(now.saturating_add(SETTLE));
        }
        let before = self.settling.len();
        self.settling
            .retain(|one| one.deadline.is_some_and(|deadline| deadline > now));
        self.freed = self.settling.len() < before;
        let next = self.settling.iter().filter_map(|one| one.deadline).min();
        assert_eq!(self.pool.board.expire(now), next);
    }

    fn run(&mut self, step: Step) {
        self.told.store(0, Relaxed);
        match step {
            Step::Join(name, limit) => self.join(name, limit),
            Step::Leave(name) => self.leave(name),
            Step::Reserve(name, snapshot, weight, adapter) => self.reserve(name, snapshot, weight, adapter),
            Step::Sent(which) => {
                if let Some(one) = self.lease(which) {
                    one.lease.sent();
                    one.sent = true;
                }
            }
            Step::FirstByte(which) => {
                if let Some(one) = self.lease(which) {
                    one.lease.first_byte();
                    (one.sent, one.prompt) = (true, false);
                }
            }
            Step::Complete(which) => self.end(which, true),
            Step::Drop(which) => self.end(which, false),
            Step::Move(which, snapshot, name) => self.move_to(which, snapshot, name),
            Step::Sample(name) => self.sample(name),
            Step::Report(name, which, slots, running, waiting) => {
                self.report(name, which, slots, running, waiting);
            }
            Step::Wait(steps) => self.pool.wait(4 * steps),
            Step::Expire => self.expire(),
        }
        self.check_told();
        self.check();
    }

    fn check(&self) {
        let ledger = self.pool.snapshot.ledger();
        for (tenancy, one) in self.tenancies.iter().enumerate() {
            if !one.here && self.is_quiet(tenancy) {
                continue;
            }
            let open = || self.open.iter().filter(|open| open.tenancy == tenancy);
            let load = ledger.own_load(one.place.unwrap());
            assert_eq!(load.weight, self.weight(tenancy), "weight of {one:?}");
            assert_eq!(load.requests as usize, open().count(), "requests of {one:?}");
            let adapters = open().filter(|one| one.adapter).count();
            assert_eq!(load.adapter_requests as usize, adapters, "adapters of {one:?}");
            let prompts = open().filter(|one| one.prompt).count();
            assert_eq!(load.prefill_tokens, 100 * prompts as u64, "prompts of {one:?}");
            if one.here {
                assert_eq!(load.limit, one.limit(), "limit of {one:?}");
            }
        }
        let settling: u64 = self.settling.iter().map(|one| u64::from(one.weight)).sum();
        assert_eq!(ledger.settling_weight(), settling);
    }

    /// Ends all that is open; then nothing is left anywhere.
    fn finish(mut self) {
        while !self.open.is_empty() {
            self.end(0, false);
            self.check();
        }
        self.expire();
        self.pool.wait(10_000);
        self.expire();
        assert!(self.settling.is_empty());
        for one in &self.tenancies {
            let load = self.pool.snapshot.ledger().own_load(one.place.unwrap());
            let counts = (
                load.weight,
                load.requests,
                load.prefill_tokens,
                load.adapter_requests,
            );
            assert_eq!(counts, (0, 0, 0, 0));
        }
    }
}

#[test]
fn the_counters_equal_the_model() {
    let config = Config {
        cases: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let ran = TestRunner::new_with_rng(config, random).run(&steps(), |steps| {
        let mut model = Model::new();
        for step in steps {
            model.run(step);
        }
        model.finish();
        Ok(())
    });
    if let Err(failure) = ran {
        panic!("{failure}");
    }
}
