//! Do those who ask for several sequences get their turn, and what may they cost the others?

use std::collections::BTreeMap;

use super::super::holds::PASSES;
use super::super::*;
use super::placed;

const TOLD: Told = Told {
    nobody_able: false,
    again: None,
};

fn id(name: &str) -> UpstreamId {
    UpstreamId::new(name).unwrap()
}

/// Upstreams of four slots each.
struct World {
    queue: WaitQueue<&'static str>,
    free: BTreeMap<&'static str, u32>,
    now: Moment,
}

impl World {
    fn new(upstreams: &[&'static str]) -> Self {
        Self {
            queue: WaitQueue::new(QueueLimits::new(99, 99, Duration::from_secs(10))),
            free: upstreams.iter().map(|name| (*name, 0)).collect(),
            now: Moment::ZERO,
        }
    }

    /// Somebody of this name, who is his own tenant, comes.
    fn comes(&mut self, who: &'static str, weight: u32, priority: i32, only: &'static str) -> Ticket {
        let mut facts = RequestFacts::new();
        (facts.tenant, facts.weight, facts.priority) = (Some(who.into()), weight, priority);
        facts.arrived = self.now;
        facts.model = Some(only.into());
        let pushed = self.queue.push(facts, Tried::default(), TOLD, self.now, who);
        pushed.unwrap().ticket
    }

    /// This much becomes free somewhere. Who gets a place there?
    fn frees(&mut self, upstream: &'static str, weight: u32) -> Vec<&'static str> {
        *self.free.get_mut(upstream).unwrap() += weight;
        self.round()
    }

    fn round(&mut self) -> Vec<&'static str> {
        self.now = self.now.saturating_add(Duration::from_millis(1));
        let free = &mut self.free;
        let served = self.queue.hand_out(self.now, 0, |waiting, kept| {
            let (needs, name) = (waiting.facts.weight, waiting.facts.model.as_deref().unwrap());
            let mine: Vec<_> = free
                .keys()
                .copied()
                .filter(|one| name == "any" || name == *one)
                .collect();
            let mine = mine.iter().filter(|one| !kept.contains(&id(one)));
            let short = mine.clone().find(|one| free[*one] > 0);
            match mine.clone().find(|one| free[*one] >= needs) {
                Some(fits) => {
                    *free.get_mut(fits).unwrap() -= needs;
                    Offer::Place {
                        place: (),
                        upstream: id(fits),
                        weight: needs,
                    }
                }
                None => short.map_or(Offer::Wait(TOLD), |short| Offer::Short {
                    told: TOLD,
                    upstream: id(short),
                }),
            }
        });
        served.into_iter().map(|served| served.waiting.handle).collect()
    }

    /// As many places go past whoever is first as may.
    fn passes(&mut self, upstream: &'static str) {
        for _ in 0..PASSES {
            self.comes("light", 1, 0, upstream);
            assert_eq!(self.frees(upstream, 1), ["light"]);
        }
    }
}

#[test]
fn after_some_places_went_past_him_room_is_held_back_until_he_fits() {
    let mut world = World::new(&["a"]);
    world.comes("heavy", 4, 0, "a");
    world.passes("a");
    for _ in 0..3 {
        world.comes("light", 1, 0, "a");
        assert_eq!(world.frees("a", 1), [""; 0]);
    }
    assert_eq!(world.frees("a", 1), ["heavy"]);
    assert_eq!(
        world.queue.next_again(),
        Some(world.now),
        "the others are asked again at once"
    );
    assert_eq!(world.frees("a", 3), ["light"; 3]);
}

#[test]
fn those_who_go_elsewhere_and_those_of_a_higher_class_are_not_held_up() {
    let mut world = World::new(&["a", "b"]);
    world.comes("heavy", 4, 0, "a");
    world.passes("a");
    world.comes("light", 1, 0, "a");
    assert_eq!(world.frees("a", 1), [""; 0]);
    world.comes("elsewhere", 1, 0, "b");
    world.comes("anywhere", 1, 0, "any");
    assert_eq!(world.frees("b", 2), ["anywhere", "elsewhere"]);
    world.comes("high", 1, 1, "a");
    assert_eq!(world.round(), ["high"]);
    assert_eq!(world.queue.kept_from(Priority::High), []);
    assert_eq!(world.queue.kept_from(Priority::Sheddable), [id("a")]);
}

#[test]
fn where_it_was_in_vain_nothing_is_held_back_for_as_long_again() {
    let mut world = World::new(&["a"]);
    let heavy = world.comes("heavy", 4, 0, "a");
    world.passes("a");
    assert_eq!(world.frees("a", 1), [""; 0]);
    world.now = Moment::from_millis(4_000);
    let left = world.queue.remove(heavy, world.now);
    assert!(left.is_some());
    assert_eq!(world.queue.next_again(), Some(world.now), "it is free for others");
    world.free.insert("a", 0);
    // It was held from the fourth millisecond on, so it rests until the end of the eighth second, about.
    world.comes("heavy", 4, 0, "a");
    for _ in 0..4 * PASSES {
        world.comes("light", 1, 0, "a");
        assert_eq!(world.frees("a", 1), ["light"]);
    }
    world.now = Moment::from_millis(8_000);
    world.passes("a");
    world.comes("light", 1, 0, "a");
    assert_eq!(world.frees("a", 1), [""; 0]);
}

#[test]
fn room_is_held_back_for_no_longer_than_he_waits() {
    let mut world = World::new(&["a"]);
    world.comes("heavy", 4, 0, "a");
    world.passes("a");
    world.comes("light", 1, 0, "a");
    assert_eq!(world.frees("a", 1), [""; 0]);
    assert_eq!(world.queue.next_again(), Some(Moment::from_millis(10_000)));
    world.now = Moment::from_millis(10_000);
    assert_eq!(world.queue.expire(world.now).len(), 1);
    assert_eq!(world.round(), ["light"]);
}

#[test]
fn one_tenant_has_one_upstream_held_back_at_a_time() {
    let mut world = World::new(&["a", "b"]);
    world.comes("heavy", 4, 0, "a");
    world.comes("heavy", 4, 0, "b");
    world.passes("a");
    assert_eq!(world.queue.kept_from(Priority::Standard), [id("a")]);
    world.passes("b");
    world.passes("b");
    assert_eq!(world.queue.kept_from(Priority::Standard), [id("a")]);
    world.comes("other", 4, 0, "b");
    // The one who was first there has the other upstream already, so it is the other's turn.
    world.passes("b");
    assert_eq!(world.queue.kept_from(Priority::Standard), [id("a"), id("b")]);
}

#[test]
fn places_that_go_to_those_who_never_waited_count_too() {
    let mut world = World::new(&["a"]);
    world.comes("heavy", 4, 0, "a");
    assert_eq!(world.frees("a", 1), [""; 0]);
    for _ in 0..PASSES {
        assert_eq!(world.queue.kept_from(Priority::Standard), []);
        world.queue.went(&id("a"), Priority::High, world.now);
        world.queue.went(&id("b"), Priority::Standard, world.now);
        world.queue.went(&id("a"), Priority::Standard, world.now);
    }
    assert_eq!(world.queue.kept_from(Priority::Standard), [id("a")]);
}

#[test]
fn each_of_many_kinds_is_asked_once_in_its_turn() {
    let mut queue = WaitQueue::new(QueueLimits::new(20_000, 99, Duration::from_secs(10)));
    for number in (0..10_000).rev() {
        let mut facts = RequestFacts::new();
        (facts.weight, facts.tenant) = (number % 5_000 + 1, Some("one".into()));
        facts.arrived = Moment::from_millis(number.into());
        let pushed = queue.push(facts, Tried::default(), TOLD, Moment::ZERO, number);
        assert!(pushed.is_ok());
    }
    let mut asked = Vec::new();
    let served = queue.hand_out(Moment::ZERO, 0, |waiting, _| {
        asked.push(waiting.handle);
        match waiting.handle {
            7 => placed(waiting),
            _ => Offer::Wait(TOLD),
        }
    });
    let mut expected: Vec<_> = (0..5_000).collect();
    expected.push(5_007);
    assert_eq!(
        (asked, served.len()),
        (expected, 1),
        "whoever got a place spoke for himself alone"
    );
}
