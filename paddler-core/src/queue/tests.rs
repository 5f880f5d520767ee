//! Who is in, who is next, and who has to go.

mod fairness;
mod heavy;

use proptest::prelude::*;

use super::*;
use crate::upstream::UpstreamId;

const PLACE: Told = Told {
    nobody_able: false,
    again: None,
};

fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

fn facts(bytes: u64) -> RequestFacts {
    let mut facts = RequestFacts::new();
    facts.body_bytes = bytes;
    facts
}

fn of(tenant: &str, priority: i32) -> RequestFacts {
    let mut facts = facts(0);
    facts.tenant = Some(tenant.into());
    facts.priority = priority;
    facts
}

fn limits(max_requests: usize, max_bytes: u64) -> QueueLimits {
    QueueLimits::new(max_requests, max_bytes, Duration::from_secs(10))
}

fn push<T>(queue: &mut WaitQueue<T>, facts: RequestFacts, who: T) -> Result<Pushed<T>, QueueFull> {
    queue.push(facts, Tried::default(), PLACE, Moment::ZERO, who)
}

/// A place for all that he asks for.
pub(super) fn placed<T>(waiting: &Waiting<T>) -> Offer<()> {
    Offer::Place {
        place: (),
        upstream: UpstreamId::new("a").unwrap(),
        weight: waiting.facts.weight,
    }
}

/// Hands out so many places that anybody can use.
fn serve<T>(queue: &mut WaitQueue<T>, mut places: usize) -> Vec<T> {
    let served = queue.hand_out(at(1), 0, |waiting, _| match places {
        0 => Offer::Full(PLACE),
        _ => {
            places -= 1;
            placed(waiting)
        }
    });
    served.into_iter().map(|served| served.waiting.handle).collect()
}

fn evicted<T>(pushed: Pushed<T>) -> Vec<T> {
    pushed.evicted.into_iter().map(|waiting| waiting.handle).collect()
}

#[test]
fn it_is_bounded_by_number_and_bytes_and_both_come_back() {
    let mut queue = WaitQueue::new(limits(2, 100));
    let first = push(&mut queue, facts(60), 1).unwrap().ticket;
    assert_eq!(push(&mut queue, facts(41), 2).unwrap_err(), QueueFull::Bytes);
    push(&mut queue, facts(40), 3).unwrap();
    assert_eq!(push(&mut queue, facts(0), 4).unwrap_err(), QueueFull::Requests);
    assert_eq!(queue.remove(first, at(1)).unwrap().handle, 1);
    assert!(queue.remove(first, at(1)).is_none(), "a ticket is good once");
    assert_eq!((queue.len(), queue.bytes()), (1, 40));
    push(&mut queue, facts(60), 5).unwrap();
    assert_eq!(serve(&mut queue, 9), [3, 5]);
    assert_eq!((queue.len(), queue.bytes()), (0, 0));
    let mut none = WaitQueue::new(limits(0, 100));
    assert_eq!(push(&mut none, facts(0), ()).unwrap_err(), QueueFull::Requests);
}

#[test]
fn the_earlier_deadline_counts_from_the_arrival() {
    let mut queue = WaitQueue::new(limits(9, 100));
    let mut came = facts(0);
    came.arrived = at(1_000);
    let mut wait = |facts: &RequestFacts, who| {
        queue
            .push(facts.clone(), Tried::default(), PLACE, at(2_000), who)
            .unwrap()
            .deadline
    };
    assert_eq!(wait(&came, "second"), at(11_000));
    came.deadline = Some(at(3_000));
    assert_eq!(wait(&came, "first"), at(3_000));
    came.deadline = Some(at(99_000));
    assert_eq!(
        wait(&came, "third"),
        at(11_000),
        "nobody waits for longer than may"
    );
    assert_eq!(queue.waits()[1].oldest, Some(at(2_000)));
    assert_eq!(queue.next_end(), Some(at(3_000)));
    assert!(queue.expire(at(2_999)).is_empty());
    assert_eq!(serve(&mut queue, 1), ["first"], "the earliest deadline is first");
    assert_eq!(
        queue
            .expire(at(11_000))
            .iter()
            .map(|w| w.handle)
            .collect::<Vec<_>>(),
        ["second", "third"]
    );
    assert!(queue.is_empty() && queue.next_end().is_none());
}

#[test]
fn who_came_first_stands_first_also_when_he_waits_once_more() {
    let mut queue = WaitQueue::new(limits(9, 100));
    for (who, arrived) in [("second", 20), ("third", 30), ("first", 10)] {
        let mut facts = facts(0);
        facts.arrived = at(arrived);
        queue.push(facts, Tried::default(), PLACE, at(40), who).unwrap();
    }
    assert_eq!(serve(&mut queue, 9), ["first", "second", "third"]);
}

#[test]
fn places_go_to_the_first_who_can_use_them() {
    let mut queue = WaitQueue::new(limits(9, 100));
    for who in 0..6 {
        let mut facts = facts(0);
        facts.model = Some(if who % 2 == 1 { "odd".into() } else { "even".into() });
        push(&mut queue, facts, who).unwrap();
    }
    let (mut places, mut asked) = (2, 0);
    let served = queue.hand_out(at(1), 0, |waiting, _| {
        asked += 1;
        if waiting.handle % 2 == 0 || places == 0 {
            return Offer::Wait(PLACE);
        }
        places -= 1;
        placed(waiting)
    });
    let handles = served
        .iter()
        .map(|served| served.waiting.handle)
        .collect::<Vec<_>>();
    assert_eq!(
        (handles, asked),
        (vec![1, 3], 4),
        "one of each kind speaks for all"
    );
    assert_eq!(serve(&mut queue, 9), [0, 2, 4, 5]);
}

#[test]
fn who_may_go_elsewhere_speaks_for_himself() {
    let mut queue = WaitQueue::new(limits(99, 100));
    for (who, only) in [None, Some("a"), Some("a"), Some("b")].into_iter().enumerate() {
        let mut facts = of("m", 0);
        facts.only = only.map(|id| [UpstreamId::new(id).unwrap()].into());
        push(&mut queue, facts, who).unwrap();
    }
    let mut asked = Vec::new();
    queue.hand_out(at(1), 0, |waiting, _| {
        asked.push(waiting.handle);
        Offer::<()>::Wait(PLACE)
    });
    assert_eq!(asked, [0, 1, 3]);
}

#[test]
fn so_many_others_as_are_wanted_are_asked_too_and_nobody_twice() {
    let mut queue = WaitQueue::new(limits(99, 100));
    for who in 0..20 {
        push(&mut queue, of(["a", "b", "c"][who % 3], who as i32 % 2), who).unwrap();
    }
    for (others, many) in [(usize::MAX, 20), (0, 2), (20, 20)] {
        let mut asked = Vec::new();
        let served = queue.hand_out(at(1), others, |waiting, _| {
            asked.push(waiting.handle);
            Offer::<()>::Wait(PLACE)
        });
        assert!(served.is_empty());
        asked.sort_unstable();
        assert_eq!(asked.len(), many, "{asked:?}");
        asked.dedup();
        assert_eq!(asked.len(), many, "nobody twice");
    }
}

#[test]
fn everybody_speaks_for_himself_in_his_turn_however_many_come_and_go() {
    let mut queue = WaitQueue::new(limits(999, 100));
    let mut came = Vec::new();
    for who in 0..10 {
        came.push(push(&mut queue, of("a", 0), who).unwrap().ticket);
    }
    let asked = |queue: &mut WaitQueue<usize>| {
        let mut asked = Vec::new();
        queue.hand_out(at(1), 4, |waiting, _| {
            asked.push(waiting.handle);
            Offer::<()>::Full(PLACE)
        });
        asked
    };
    // The first speaks for his kind in each round, and is not asked twice in it.
    assert_eq!(asked(&mut queue), [0, 1, 2, 3]);
    for who in [3, 5] {
        queue.remove(came[who], at(1));
    }
    for who in 10..90 {
        push(&mut queue, of("a", 0), who).unwrap();
    }
    assert_eq!(asked(&mut queue), [0, 4, 6, 7, 8]);
    assert_eq!(
        asked(&mut queue),
        [0, 9],
        "those who have come since wait for the next pass"
    );
    assert_eq!(asked(&mut queue), [0, 1, 2, 4]);
    for ticket in came {
        queue.remove(ticket, at(1));
    }
    assert_eq!(
        asked(&mut queue),
        [10, 11, 12, 13],
        "it goes on after those who have left"
    );
}

#[test]
fn who_is_to_be_asked_again_is_asked_then_though_nothing_is_free() {
    let mut queue = WaitQueue::new(limits(9, 100));
    let later = |again| Told {
        again: Some(at(again)),
        ..PLACE
    };
    queue
        .push(facts(0), Tried::default(), later(50), Moment::ZERO, "patient")
        .unwrap();
    queue
        .push(facts(0), Tried::default(), PLACE, Moment::ZERO, "other")
        .unwrap();
    queue
        .push(
            facts(0),
            Tried::default(),
            later(70),
            Moment::ZERO,
            "more patient",
        )
        .unwrap();
    assert_eq!(queue.next_again(), Some(at(50)));
    let mut asked = Vec::new();
    let mut first = true;
    let served = queue.hand_out(at(60), 0, |waiting, _| {
        asked.push(waiting.handle);
        if std::mem::take(&mut first) {
            return Offer::Full(PLACE);
        }
        Offer::Leave(())
    });
    // The one who was asked first has no time any more; the other's has not come.
    assert_eq!((asked, served.len()), (vec!["patient"], 0));
    assert_eq!(queue.next_again(), Some(at(70)));
    let served = queue.hand_out(at(70), 0, |waiting, _| match waiting.again() {
        Some(_) => Offer::Leave(()),
        None => Offer::Full(PLACE),
    });
    assert_eq!(served[0].waiting.handle, "more patient");
    assert!(served[0].charge.is_none(), "who gets no place pays nothing");
}

#[test]
fn the_wait_is_longer_while_nobody_is_able_and_all_of_a_kind_hear_of_it() {
    let mut limits = limits(9, 100);
    limits.max_wait_starting = Duration::from_secs(60);
    let mut queue = WaitQueue::new(limits);
    let nobody = Told {
        nobody_able: true,
        ..PLACE
    };
    for who in 0..2 {
        let pushed = queue
            .push(facts(0), Tried::default(), nobody, Moment::ZERO, who)
            .unwrap();
        assert_eq!(pushed.deadline, at(60_000));
    }
    let mut hurried = facts(0);
    hurried.deadline = Some(at(20_000));
    queue
        .push(hurried, Tried::default(), nobody, Moment::ZERO, 2)
        .unwrap();
    assert_eq!(
        queue.next_end(),
        Some(at(20_000)),
        "what the client says counts at all times"
    );
    // One is told that somebody is able now, and busy.
    queue.hand_out(at(45_000), 0, |_, _| Offer::<()>::Wait(PLACE));
    assert_eq!(
        queue
            .expire(at(54_999))
            .iter()
            .map(|w| w.handle)
            .collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(queue.next_end(), Some(at(55_000)), "the usual wait from then");
    queue.hand_out(at(50_000), 0, |_, _| Offer::<()>::Wait(nobody));
    assert_eq!(queue.next_end(), Some(at(60_000)), "away again");
    assert_eq!(queue.expire(at(60_000)).len(), 2);
}

#[test]
fn a_full_queue_lets_in_whoever_comes_first_and_the_last_of_the_lowest_goes() {
    let mut queue = WaitQueue::new(limits(5, 100));
    for who in ["shed 1", "shed 2", "shed 3"] {
        push(&mut queue, of("a", -1), who).unwrap();
    }
    push(&mut queue, of("a", 0), "standard 1").unwrap();
    push(&mut queue, of("a", 0), "standard 2").unwrap();
    assert_eq!(
        push(&mut queue, of("a", -1), "").unwrap_err(),
        QueueFull::Requests
    );
    assert_eq!(
        evicted(push(&mut queue, of("a", 0), "standard 3").unwrap()),
        ["shed 3"]
    );
    assert_eq!(
        evicted(push(&mut queue, of("a", 1), "high 1").unwrap()),
        ["shed 2"]
    );
    assert_eq!(
        evicted(push(&mut queue, of("a", 1), "high 2").unwrap()),
        ["standard 3"],
        "the last place of a class is its own"
    );
    assert_eq!(
        push(&mut queue, of("a", -1), "").unwrap_err(),
        QueueFull::Requests
    );
    assert_eq!(
        queue.waits().map(|waits| (waits.waiting, waits.evicted)),
        [(2, 0), (2, 1), (1, 2)]
    );
}

#[test]
fn a_small_queue_full_of_higher_classes_lets_in_one_of_the_lowest() {
    let mut queue = WaitQueue::new(limits(10, 100));
    for who in 0..10 {
        push(&mut queue, of("a", 1), who).unwrap();
    }
    assert_eq!(evicted(push(&mut queue, of("a", -1), 10).unwrap()), [9]);
    assert!(push(&mut queue, of("a", -1), 11).is_err(), "and no more");
}

#[test]
fn each_class_keeps_its_part_of_a_full_queue() {
    let mut queue = WaitQueue::new(limits(100, 100));
    for who in 0..100 {
        push(&mut queue, of("a", 1), who).unwrap();
    }
    for (priority, part) in [(0, 25), (-1, 5)] {
        for who in 0..part {
            assert_eq!(
                evicted(push(&mut queue, of("b", priority), who).unwrap()).len(),
                1
            );
        }
        assert_eq!(
            push(&mut queue, of("b", priority), 0).unwrap_err(),
            QueueFull::Requests
        );
    }
    assert_eq!(push(&mut queue, of("a", 1), 0).unwrap_err(), QueueFull::Requests);
    assert_eq!(queue.waits().map(|waits| waits.waiting), [70, 25, 5]);
    assert_eq!(queue.waits().map(|waits| waits.evicted), [30, 0, 0]);
}

#[test]
fn one_tenant_cannot_fill_the_queue_for_another() {
    let mut queue = WaitQueue::new(limits(10, 100));
    for who in 0..10 {
        push(&mut queue, of("large", 0), who).unwrap();
    }
    assert_eq!(
        push(&mut queue, of("large", 0), 0).unwrap_err(),
        QueueFull::Requests
    );
    for last in (5..10).rev() {
        assert_eq!(
            evicted(push(&mut queue, of("small", 0), 99).unwrap()),
            [last],
            "the last of the large one"
        );
    }
    assert_eq!(
        push(&mut queue, of("small", 0), 99).unwrap_err(),
        QueueFull::Requests,
        "half is enough"
    );
    let mut heavy = of("heavy", 0);
    heavy.tenant_weight = 8;
    for _ in 0..8 {
        assert_eq!(evicted(push(&mut queue, heavy.clone(), 1).unwrap()).len(), 1);
    }
    assert!(push(&mut queue, heavy, 1).is_err());
}

#[test]
fn bytes_are_made_room_for_by_lower_classes_alone_and_never_in_vain() {
    let mut queue = WaitQueue::new(limits(9, 100));
    let sized = |priority, bytes| {
        let mut facts = of("a", priority);
        facts.body_bytes = bytes;
        facts
    };
    push(&mut queue, sized(-1, 30), "shed 1").unwrap();
    push(&mut queue, sized(-1, 30), "shed 2").unwrap();
    push(&mut queue, sized(1, 40), "high").unwrap();
    assert_eq!(push(&mut queue, sized(0, 61), "").unwrap_err(), QueueFull::Bytes);
    assert_eq!(queue.len(), 3, "nobody had to go");
    assert_eq!(
        evicted(push(&mut queue, sized(0, 20), "standard").unwrap()),
        ["shed 2"]
    );
    assert_eq!(queue.bytes(), 90);
}

#[test]
fn a_smaller_limit_lets_nobody_in_until_enough_have_left() {
    let mut queue = WaitQueue::new(limits(4, 100));
    for who in 0..4 {
        push(&mut queue, of("a", -1), who).unwrap();
    }
    queue.set_limits(limits(2, 100));
    assert!(push(&mut queue, of("a", 1), 9).is_err());
    assert_eq!(serve(&mut queue, 2), [0, 1]);
    assert_eq!(evicted(push(&mut queue, of("a", 1), 9).unwrap()), [3]);
    assert_eq!(serve(&mut queue, 9), [9, 2]);
}

#[test]
fn the_wait_that_is_told_follows_how_fast_the_queue_moves() {
    let mut queue = WaitQueue::new(limits(99, 100));
    for who in 0..60 {
        push(&mut queue, facts(0), who).unwrap();
    }
    assert_eq!(queue.wait_for(Priority::Standard, at(500)), None);
    for second in 1..=40 {
        let mut places = 1;
        queue.hand_out(at(second * 1_000), 0, |waiting, _| {
            match std::mem::take(&mut places) {
                0 => Offer::Full(PLACE),
                _ => placed(waiting),
            }
        });
    }
    // Twenty before him, one a second.
    let told = queue.wait_for(Priority::Standard, at(40_000)).unwrap();
    assert!((19..=22).contains(&told.as_secs()), "{told:?}");
    let told = queue.wait_for(Priority::High, at(40_000)).unwrap();
    assert_eq!(told, Duration::from_secs(1), "nobody before him");
}

#[derive(Debug, Clone)]
enum Step {
    Push {
        tenant: usize,
        priority: i32,
        model: usize,
        bytes: u64,
        wait: Option<u64>,
    },
    Leave(usize),
    HandOut {
        places: [usize; 2],
        others: usize,
    },
    Settle {
        which: usize,
        output: u64,
    },
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let push = (
        0usize..4,
        -1..=1,
        0usize..2,
        0u64..40,
        prop::option::of(0u64..5_000),
    )
        .prop_map(|(tenant, priority, model, bytes, wait)| Step::Push {
            tenant,
            priority,
            model,
            bytes,
            wait,
        });
    let step = prop_oneof![
        6 => push,
        1 => (0usize..30).prop_map(Step::Leave),
        3 => (0usize..3, 0usize..3, 0usize..6).prop_map(|(a, b, others)| Step::HandOut { places: [a, b], others }),
        1 => (0usize..30, 0u64..900).prop_map(|(which, output)| Step::Settle { which, output }),
        1 => (0u64..4_000).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    /// Nobody is lost or there twice, whatever happens; limits hold; and a round leaves no place that somebody could use.
    #[test]
    fn everybody_leaves_exactly_once(steps in steps()) {
        let mut queue = WaitQueue::new(limits(8, 100));
        let (mut now, mut next) = (Moment::ZERO, 0usize);
        let mut inside = BTreeMap::new();
        let mut charges = Vec::new();
        for step in steps {
            match step {
                Step::Push { tenant, priority, model, bytes, wait } => {
                    let mut facts = of(["a", "b", "c", "d"][tenant], priority);
                    facts.model = Some(["x", "y"][model].into());
                    facts.arrived = now;
                    facts.body_bytes = bytes;
                    facts.deadline = wait.map(|wait| now.saturating_add(Duration::from_millis(wait)));
                    let full = queue.len() == 8;
                    if let Ok(pushed) = queue.push(facts, Tried::default(), PLACE, now, (next, model)) {
                        prop_assert!(inside.insert(next, (pushed.ticket, model)).is_none());
                        prop_assert!(pushed.evicted.is_empty() || full || bytes > 0);
                        for gone in pushed.evicted {
                            prop_assert!(inside.remove(&gone.handle.0).is_some());
                        }
                    }
                    next += 1;
                }
                Step::Leave(which) => {
                    if let Some(who) = inside.keys().nth(which).copied() {
                        let (ticket, _) = inside.remove(&who).unwrap();
                        prop_assert_eq!(queue.remove(ticket, now).unwrap().handle.0, who);
                    }
                }
                Step::HandOut { mut places, others } => {
                    let served = queue.hand_out(now, others, |waiting, _| {
                        let place = &mut places[waiting.handle.1];
                        if *place == 0 { return Offer::Wait(PLACE); }
                        *place -= 1;
                        placed(waiting)
                    });
                    for one in served {
                        prop_assert!(inside.remove(&one.waiting.handle.0).is_some());
                        charges.extend(one.charge);
                    }
                    for (model, left) in places.iter().enumerate() {
                        prop_assert!(*left == 0 || inside.values().all(|(_, other)| *other != model), "a place was left");
                    }
                }
                Step::Settle { which, output } => {
                    if which < charges.len() {
                        let charge = charges.swap_remove(which);
                        queue.settle(&charge, Used::Tokens { prompt: None, output });
                    }
                }
                Step::Pass(millis) => {
                    now = now.saturating_add(Duration::from_millis(millis));
                    for gone in queue.expire(now) {
                        prop_assert!(gone.deadline <= now);
                        prop_assert!(inside.remove(&gone.handle.0).is_some());
                    }
                }
            }
            prop_assert_eq!(queue.len(), inside.len());
            prop_assert_eq!(queue.waits().iter().map(|waits| waits.waiting).sum::<usize>(), inside.len());
            prop_assert!(queue.len() <= 8 && queue.bytes() <= 100);
            prop_assert_eq!(queue.next_end().is_none(), inside.is_empty());
        }
        for (who, (ticket, _)) in inside {
            prop_assert_eq!(queue.remove(ticket, now).unwrap().handle.0, who);
        }
        prop_assert_eq!((queue.len(), queue.bytes(), queue.groups.len()), (0, 0, 0));
    }
}

/// A tenant who always has somebody there in a hurry, and a patient one who came before.
#[test]
fn short_deadlines_bring_a_request_forward_by_half_of_the_longest_wait_at_most() {
    let mut queue = WaitQueue::new(limits(99, 100));
    let mut come = |millis: u64, hurried: bool, who: &'static str| {
        let mut facts = facts(0);
        facts.arrived = at(millis);
        facts.deadline = hurried.then(|| at(millis + 1_000));
        queue
            .push(facts, Tried::default(), PLACE, at(millis), who)
            .unwrap();
    };
    come(0, false, "patient");
    come(4_000, true, "hurried");
    come(4_999, true, "hurried later");
    come(5_001, true, "too late to be first");
    assert_eq!(
        serve(&mut queue, 4),
        ["hurried", "hurried later", "patient", "too late to be first"]
    );
    let mut short = facts(0);
    (short.arrived, short.deadline) = (at(6_000), Some(at(6_030)));
    let pushed = queue.push(short, Tried::default(), PLACE, at(6_000), "short");
    assert_eq!(
        pushed.unwrap().deadline,
        at(6_030),
        "nobody waits for longer than he asks"
    );
}

#[test]
fn a_shorter_wait_puts_those_who_wait_behind_nobody_who_comes_later() {
    let with_wait = |seconds| QueueLimits::new(99, 1_000, Duration::from_secs(seconds));
    let mut queue = WaitQueue::new(with_wait(600));
    push(&mut queue, facts(0), "came before").unwrap();
    queue.set_limits(with_wait(10));
    let mut later = facts(0);
    later.arrived = at(1);
    queue
        .push(later, Tried::default(), PLACE, at(1), "came after")
        .unwrap();
    assert_eq!(serve(&mut queue, 2), ["came before", "came after"]);
}

/// All get a place; the charges of those who do.
fn charges(queue: &mut WaitQueue<usize>, places: usize) -> Vec<(usize, Charge)> {
    let mut free = places;
    let served = queue.hand_out(at(1), 0, |waiting, _| match free {
        0 => Offer::Full(PLACE),
        _ => {
            free -= 1;
            placed(waiting)
        }
    });
    let charged = served
        .into_iter()
        .map(|one| (one.waiting.handle, one.charge.unwrap()));
    charged.collect()
}

#[test]
fn what_is_set_right_counts_at_the_weight_at_which_it_was_charged() {
    let mut queue = WaitQueue::new(limits(99, 100));
    let with_weight = |tenant: &str, weight| {
        let mut facts = of(tenant, 0);
        facts.tenant_weight = weight;
        facts
    };
    push(&mut queue, with_weight("two keys", 1), 1).unwrap();
    push(&mut queue, with_weight("plain", 1), 2).unwrap();
    charges(&mut queue, 2);
    push(&mut queue, with_weight("two keys", 100), 1).unwrap();
    let (_, light) = charges(&mut queue, 1).remove(0);
    // By his other key he counts for less. What he was charged at the greater weight is little, and so is what comes back.
    push(&mut queue, with_weight("two keys", 1), 1).unwrap();
    queue.settle(&light, Used::Nothing);
    push(&mut queue, with_weight("two keys", 1), 1).unwrap();
    push(&mut queue, with_weight("plain", 1), 2).unwrap();
    push(&mut queue, with_weight("plain", 1), 2).unwrap();
    assert_eq!(serve(&mut queue, 4), [2, 1, 2, 1], "they are even again");
}

#[test]
fn an_absurd_number_of_tokens_does_not_end_a_tenants_turns() {
    let mut queue = WaitQueue::new(limits(99, 100));
    push(&mut queue, of("one", 0), 1).unwrap();
    let (_, charge) = charges(&mut queue, 1).remove(0);
    queue.settle(
        &charge,
        Used::Tokens {
            prompt: Some(u64::MAX),
            output: u64::MAX,
        },
    );
    push(&mut queue, of("one", 0), 1).unwrap();
    let (_, charge) = charges(&mut queue, 1).remove(0);
    assert!(
        charge.tokens() < 1 << 22,
        "nor is it what the next is charged: {}",
        charge.tokens()
    );
}

#[test]
fn time_in_which_nobody_waits_is_no_credit() {
    let mut queue = WaitQueue::new(limits(99, 100));
    for _ in 0..9 {
        push(&mut queue, of("busy", 0), 1).unwrap();
        assert_eq!(serve(&mut queue, 1), [1]);
    }
    for who in [2, 1] {
        for _ in 0..3 {
            push(&mut queue, of(["busy", "idle"][who - 1], 0), who).unwrap();
        }
    }
    let order = serve(&mut queue, 4);
    assert_eq!(order.iter().filter(|who| **who == 1).count(), 2, "{order:?}");
}
