//! Do the bounds hold that the module states?

use proptest::prelude::*;

use super::super::*;
use super::placed;

const NONE: Told = Told {
    nobody_able: false,
    again: None,
};

/// A pool of places, and tenants who always have somebody waiting.
struct World {
    queue: WaitQueue<usize>,
    services: usize,
}

impl World {
    fn new(max_requests: usize) -> Self {
        let limits = QueueLimits::new(max_requests, u64::MAX, Duration::from_secs(1_000_000));
        Self {
            queue: WaitQueue::new(limits),
            services: 0,
        }
    }

    fn push(&mut self, tenant: usize, priority: i32, tokens: u32, weight: u32) -> Ticket {
        let mut facts = RequestFacts::new();
        // No answer: what is charged is the prompt.
        facts.class = crate::request::RequestClass::Generate(crate::request::Task::Embedding);
        facts.tenant = Some(format!("tenant {tenant}").into());
        (facts.priority, facts.tokens, facts.tenant_weight) = (priority, tokens, weight);
        facts.arrived = Moment::from_millis(self.services as u64);
        let now = facts.arrived;
        self.queue
            .push(facts, Tried::default(), NONE, now, tenant)
            .unwrap()
            .ticket
    }

    /// One place becomes free. Who got it, and what it was charged.
    fn serve(&mut self) -> Option<(usize, Charge)> {
        self.services += 1;
        let mut free = true;
        let now = Moment::from_millis(self.services as u64);
        let served = self
            .queue
            .hand_out(now, 0, |waiting, _| match std::mem::take(&mut free) {
                true => placed(waiting),
                false => Offer::Full(NONE),
            });
        let one = served.into_iter().next()?;
        Some((one.waiting.handle, one.charge.unwrap()))
    }
}

proptest! {
    /// The bound of the virtual token counter: of two tenants who both wait all the time, neither is ahead by more than
    /// twice the largest charge, each divided by its weight.
    #[test]
    fn tenants_who_wait_all_the_time_get_tokens_by_weight(
        tenants in prop::collection::vec((1u32..=8, prop::collection::vec(1u32..3_000, 1..6)), 2..6),
        places in 50usize..400,
    ) {
        let mut world = World::new(100);
        let mut got = vec![0.0; tenants.len()];
        let mut turns = vec![0; tenants.len()];
        let mut push = |world: &mut World, tenant: usize| {
            let (weight, sizes) = &tenants[tenant];
            let size = sizes[turns[tenant] % sizes.len()];
            turns[tenant] += 1;
            world.push(tenant, 0, size, *weight);
        };
        for tenant in 0..tenants.len() {
            (0..3).for_each(|_| push(&mut world, tenant));
        }
        let largest = |(weight, sizes): &(u32, Vec<u32>)| f64::from(*sizes.iter().max().unwrap()) / f64::from(*weight);
        let bound = 2.0 * tenants.iter().map(largest).fold(0.0, f64::max) + 0.1;
        for _ in 0..places {
            let (tenant, charge) = world.serve().unwrap();
            got[tenant] += charge.tokens() as f64 / f64::from(tenants[tenant].0);
            push(&mut world, tenant);
            let most = got.iter().copied().fold(0.0, f64::max);
            let least = got.iter().copied().fold(f64::MAX, f64::min);
            prop_assert!(most - least <= bound, "{got:?} with {bound}");
        }
    }

    /// Whoever had nobody waiting comes after at most one of each other tenant, however long it was away and however much
    /// the others send; and gets no credit for having been away.
    #[test]
    fn who_comes_back_waits_for_one_of_each_other_at_most(
        others in 1usize..6,
        before in 0usize..200,
        sizes in prop::collection::vec(1u32..3_000, 1..9),
    ) {
        let mut world = World::new(1_000);
        let size = |turn: usize| sizes[turn % sizes.len()];
        for turn in 0..others * 10 {
            world.push(turn % others, 0, size(turn), 1);
        }
        for turn in 0..before {
            let (tenant, _) = world.serve().unwrap();
            world.push(tenant, 0, size(turn), 1);
        }
        for turn in 0..20 {
            world.push(others, 0, size(turn), 1);
        }
        let mut waited = 0;
        while world.serve().unwrap().0 != others {
            waited += 1;
        }
        prop_assert!(waited <= others, "{waited} services before its first");
        // From then on it is one among equals: no run of its own longer than one large charge makes up for small ones.
        let largest = f64::from(*sizes.iter().max().unwrap());
        let (mut own, mut other) = (0.0, vec![0.0; others]);
        for turn in 0..10 {
            let (tenant, charge) = world.serve().unwrap();
            match other.get_mut(tenant) {
                Some(other) => { *other += charge.tokens() as f64; world.push(tenant, 0, size(turn), 1); }
                None => own += charge.tokens() as f64,
            }
            let least = other.iter().copied().fold(f64::MAX, f64::min);
            prop_assert!(own - least <= 2.0 * largest, "{own} and {other:?}");
        }
    }

    /// Each class gets its place within the bound, whoever else comes and goes.
    #[test]
    fn no_class_starves(
        standard in 1u8..=MinShares::MOST,
        sheddable in 1u8..=MinShares::MOST,
        arrivals in prop::collection::vec((-1i32..=1, 0usize..3), 1..300),
    ) {
        let mut world = World::new(100_000);
        let shares = MinShares::new(standard, sheddable);
        let mut limits = world.queue.limits().clone();
        limits.min_shares = shares;
        world.queue.set_limits(limits);
        let mut since = [0usize; 3];
        let mut classes = Vec::new();
        for (priority, many) in arrivals {
            for _ in 0..many {
                world.push(classes.len(), priority, 10, 1);
                classes.push(Priority::of(priority));
            }
            let waits = world.queue.waits().map(|waits| waits.waiting > 0);
            let Some((who, _)) = world.serve() else { continue };
            for class in Priority::ALL {
                let since = &mut since[class.index()];
                *since = if waits[class.index()] && classes[who] != class { *since + 1 } else { 0 };
                prop_assert!(*since < shares.bound(class) as usize, "{class:?} waits for {since} with {shares:?}");
            }
        }
    }
}

/// What it comes to: `cargo test -p paddler-core --lib fairness -- --nocapture the_small` prints it.
#[test]
fn the_small_tenants_wait_does_not_depend_on_how_much_the_large_one_sends() {
    for load in [1, 10, 30] {
        let mut world = World::new(100_000);
        let (mut waits, mut since, mut worst_first_in_first_out) = (Vec::new(), None, 0);
        for round in 0..500usize {
            // One place a round; the large one sends more than there is, the small one every tenth round.
            (0..load).for_each(|_| {
                world.push(0, 0, 500, 1);
            });
            if round % 10 == 0 && since.is_none() {
                world.push(1, 0, 500, 1);
                since = Some(round);
                worst_first_in_first_out = worst_first_in_first_out.max(world.queue.len() - 1);
            }
            if world.serve().unwrap().0 == 1 {
                waits.push(round - since.take().unwrap());
            }
        }
        let most = *waits.iter().max().unwrap();
        println!(
            "large tenant sends {load} a service: the small one's {} requests waited for at most {most} services of the \
             other (bound 1; first in, first out: {worst_first_in_first_out})",
            waits.len()
        );
        assert!(waits.len() >= 49 && most <= 1, "{most}");
    }
}

#[test]
fn what_was_used_in_the_end_is_what_counts() {
    let mut world = World::new(1_000);
    for _ in 0..200 {
        world.push(0, 0, 10, 1);
        world.push(1, 0, 10, 1);
    }
    // Both look the same, and each request of one makes ten times the tokens.
    let mut used = [0u64; 2];
    for _ in 0..100 {
        let (tenant, charge) = world.serve().unwrap();
        let output = [95, 5][tenant];
        used[tenant] += 10 + 2 * output;
        world.queue.settle(&charge, Used::Tokens { prompt: None, output });
    }
    assert!(used[0].abs_diff(used[1]) <= 2 * 200, "{used:?}");
}

#[test]
fn the_next_place_is_charged_by_how_long_answers_have_been() {
    let mut world = World::new(10);
    let charged = |world: &mut World| {
        let facts = RequestFacts::new();
        let pushed = world.queue.push(facts, Tried::default(), NONE, Moment::ZERO, 0);
        assert!(pushed.is_ok());
        world.serve().unwrap().1
    };
    let first = charged(&mut world);
    for _ in 0..100 {
        let (prompt, output) = (None, 2_000);
        world.queue.settle(&first, Used::Tokens { prompt, output });
    }
    assert!(charged(&mut world).tokens() > 2 * first.tokens());
}

#[test]
fn what_came_to_nothing_costs_nothing() {
    let mut world = World::new(1_000);
    for _ in 0..40 {
        world.push(0, 0, 10, 1);
        world.push(1, 0, 10, 1);
    }
    let mut served = [0; 2];
    for _ in 0..30 {
        let (tenant, charge) = world.serve().unwrap();
        if tenant == 0 && served[0] < 10 {
            world.queue.settle(&charge, Used::Nothing);
        }
        served[tenant] += 1;
    }
    assert_eq!(served, [20, 10]);
}

#[test]
fn made_up_tenants_are_not_remembered_for_ever() {
    let mut world = World::new(10);
    for tenant in 0..5_000 {
        world.push(tenant, 0, 1_000, 1);
        let (_, charge) = world.serve().unwrap();
        world.queue.settle(
            &charge,
            Used::Tokens {
                prompt: None,
                output: 7,
            },
        );
    }
    let known = world.queue.class(Priority::Standard).tenants.known();
    assert!(known <= 1_100, "{known}");
}

#[test]
fn answers_that_were_asked_for_and_not_made_do_not_change_what_others_are_charged() {
    let mut world = World::new(10);
    let charged = |world: &mut World, weight| {
        let mut facts = RequestFacts::new();
        facts.weight = weight;
        let pushed = world.queue.push(facts, Tried::default(), NONE, Moment::ZERO, 0);
        assert!(pushed.is_ok());
        world.serve().unwrap().1
    };
    let before = charged(&mut world, 1).tokens();
    for _ in 0..300 {
        let charge = charged(&mut world, 1_000_000);
        let (prompt, output) = (None, 200);
        world.queue.settle(&charge, Used::Tokens { prompt, output });
    }
    assert_eq!(charged(&mut world, 1).tokens(), before);
}

#[test]
fn no_number_of_absurd_requests_ends_fairness_for_good() {
    let mut world = World::new(99);
    for _ in 0..12_000 {
        let mut facts = RequestFacts::new();
        facts.weight = u32::MAX;
        let pushed = world.queue.push(facts, Tried::default(), NONE, Moment::ZERO, 9);
        assert!(pushed.is_ok());
        // Nothing settles what it is charged.
        assert!(world.serve().is_some());
    }
    for _ in 0..10 {
        world.push(1, 0, 100, 1);
        world.push(2, 0, 100, 1);
    }
    let served: Vec<_> = (0..10).map(|_| world.serve().unwrap().0).collect();
    assert_eq!(served.iter().filter(|who| **who == 1).count(), 5, "{served:?}");
}
