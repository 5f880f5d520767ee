//! Does the accounting hold under every interleaving, and under every stale read that its orderings allow?
//!
//! Each test is a small program that loom runs in all the ways that can be told apart. A rule is checked where threads
//! meet, and at the end everything must be back at zero.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use loom::model::Builder;
use loom::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire},
};
use loom::thread;
use paddler_core::Moment;

#[allow(
    dead_code,
    unreachable_pub,
    reason = "a part of the library, built a second time"
)]
mod upstream;

use upstream::adapters::{AdapterCells, NameId};
use upstream::gates::Gate;
use upstream::ledger::{Ledger, SampleToken, Take, Taken};
use upstream::reserve::ReserveWord;

const NOW: Moment = Moment::from_millis(1_000);
const LATER: Moment = Moment::from_millis(60_000);
const PLACE: u32 = 1;

const ONE: Take = Take {
    weight: 1,
    tokens: 5,
    adapter: Some(NameId(7)),
};
const CONTROL: Take = Take {
    weight: 0,
    tokens: 0,
    adapter: None,
};

/// A request with weight and nothing else.
const BARE: Take = Take { weight: 1, ..CONTROL };

/// All interleavings in which threads are preempted up to `preemptions` times; that many find nearly every fault.
fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(run);
}

/// A ledger with one upstream, and the number of its tenancy.
fn ledger(limit: u32) -> (Arc<Ledger>, u16) {
    let ledger = Arc::new(Ledger::new(Duration::from_secs(10)));
    let tenant = ledger.open(PLACE, limit);
    (ledger, tenant)
}

fn weight(ledger: &Ledger) -> u32 {
    ledger.reserved(PLACE).weight()
}

fn take(ledger: &Ledger, tenant: u16, take: Take) -> Option<Taken> {
    ledger.try_take(PLACE, tenant, take, NOW)
}

/// Scans are told in bits what is so.
fn assert_shown(ledger: &Ledger) {
    let marks = ledger.marks(0);
    let told = [marks.in_use, marks.full].map(|bits| bits >> PLACE & 1 == 1);
    assert_eq!(told, [!ledger.is_quiet(PLACE), !ledger.reserved(PLACE).fits(1)]);
}

/// Nothing is open and nothing settles.
fn assert_zero(ledger: &Ledger, tenant: u16) {
    assert!(ledger.is_quiet(PLACE));
    assert_eq!((weight(ledger), ledger.settling_weight()), (0, 0));
    let (mut requests, mut prefill) = ([0; upstream::LANES], [0; upstream::LANES]);
    ledger.freeze_requests(0, u64::MAX, &mut requests);
    ledger.freeze_prefill(0, u64::MAX, &mut prefill);
    assert_eq!((requests, prefill), ([0; upstream::LANES], [0; upstream::LANES]));
    ledger.open_adapters(0, u64::MAX, |place, _| {
        panic!("an adapter has a lease at {place}")
    });
    assert_shown(ledger);
    assert_eq!(ledger.marks(0).with_adapters, 0);
    // Nothing is left in the young weight either: it would be missing from a weight that is not young.
    let old = take(ledger, tenant, Take { weight: 1, ..CONTROL });
    if let Some(old) = old {
        assert_eq!(ledger.sample(PLACE, tenant, NOW).own_weight(), 0);
        ledger.give_back(old);
    }
}

#[test]
fn two_reservers_and_one_slot() {
    model(3, || {
        let (ledger, tenant) = ledger(1);
        let reserve = |ledger: Arc<Ledger>| {
            move || {
                let taken = take(&ledger, tenant, ONE);
                assert!(weight(&ledger) <= 1);
                taken
            }
        };
        let other = thread::spawn(reserve(ledger.clone()));
        let mine = reserve(ledger.clone())();
        let theirs = other.join().unwrap();
        assert!(mine.is_some() != theirs.is_some(), "one of them has it");
        for taken in mine.into_iter().chain(theirs) {
            ledger.give_back(taken);
        }
        assert_zero(&ledger, tenant);
    });
}

#[test]
fn a_slot_that_is_given_back_can_be_had_again() {
    model(3, || {
        let (ledger, tenant) = ledger(1);
        let held = take(&ledger, tenant, ONE).unwrap();
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.give_back(held))
        };
        let raced = take(&ledger, tenant, ONE);
        other.join().unwrap();
        let taken = raced
            .or_else(|| take(&ledger, tenant, ONE))
            .expect("it is free by now");
        assert_shown(&ledger);
        assert_eq!(ledger.marks(0).with_adapters, 1 << PLACE);
        assert_eq!(weight(&ledger), 1);
        ledger.give_back(taken);
        assert_zero(&ledger, tenant);
    });
}

/// The board removes an upstream and gives the place to another one as soon as it is quiet, while a thread that still has
/// the old snapshot reserves.
fn place_changes_hands(request: Take) {
    model(3, move || {
        let (ledger, old) = ledger(4);
        let reserver = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                if let Some(taken) = take(&ledger, old, request) {
                    thread::yield_now();
                    ledger.give_back(taken);
                }
            })
        };
        ledger.close(PLACE);
        assert_eq!(take(&ledger, old, request), None, "the tenant has left");
        let quiet = ledger.is_quiet(PLACE);
        if quiet {
            let new = ledger.open(PLACE, 1);
            assert_ne!(new, old);
            // All of the place is the new tenant's: no weight, no adapter, no prompt of the old one lands here any more.
            assert_eq!(weight(&ledger), 0);
            ledger.open_adapters(0, u64::MAX, |_, _| panic!("an adapter of the old tenant"));
            let mut prefill = [0; upstream::LANES];
            ledger.freeze_prefill(0, u64::MAX, &mut prefill);
            assert_eq!(prefill, [0; upstream::LANES]);
            let taken = take(&ledger, new, ONE).expect("the new tenant has its whole limit");
            reserver.join().unwrap();
            assert_eq!(weight(&ledger), 1);
            let sampled = ledger.sample(PLACE, new, Moment::from_millis(1_100));
            assert_eq!(sampled.own_weight(), 1);
            ledger.give_back(taken);
            assert_zero(&ledger, new);
        } else {
            reserver.join().unwrap();
            assert_zero(&ledger, old);
        }
    });
}

#[test]
fn a_place_changes_hands_while_a_request_comes() {
    place_changes_hands(ONE);
}

#[test]
fn a_place_changes_hands_while_a_control_request_comes() {
    place_changes_hands(CONTROL);
}

/// Whoever has reserved before the board closes is counted when the board asks whether the place is quiet.
#[test]
fn a_request_without_weight_keeps_the_place() {
    model(3, || {
        let (ledger, tenant) = ledger(4);
        let reserver = {
            let ledger = ledger.clone();
            thread::spawn(move || take(&ledger, tenant, CONTROL))
        };
        ledger.close(PLACE);
        let quiet = ledger.is_quiet(PLACE);
        if let Some(taken) = reserver.join().unwrap() {
            assert!(!quiet, "the place was given away under a request");
            ledger.give_back(taken);
        }
        assert_zero(&ledger, tenant);
    });
}

#[test]
fn a_release_and_a_new_limit() {
    model(3, || {
        let (ledger, tenant) = ledger(2);
        let (a, b) = (
            take(&ledger, tenant, ONE).unwrap(),
            take(&ledger, tenant, ONE).unwrap(),
        );
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                ledger.give_back(a);
                take(&ledger, tenant, ONE)
            })
        };
        ledger.set_limit(PLACE, 1);
        let mine = take(&ledger, tenant, ONE);
        let theirs = other.join().unwrap();
        assert_eq!(mine, None, "below the new limit there was never room");
        // They had room only before the limit fell.
        assert_eq!(weight(&ledger), 1 + u32::from(theirs.is_some()));
        assert_eq!(take(&ledger, tenant, ONE), None);
        assert_shown(&ledger);
        ledger.give_back(b);
        theirs.into_iter().for_each(|taken| ledger.give_back(taken));
        assert_zero(&ledger, tenant);
    });
}

#[test]
fn a_move_and_the_end_of_where_it_goes() {
    model(3, || {
        let (ledger, tenant) = ledger(1);
        let from = ledger.open(0, 1);
        let mover = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                let taken = ledger.try_take(0, from, ONE, NOW).unwrap();
                match ledger.take_over(PLACE, tenant, ONE, &taken) {
                    Some(moved) => {
                        ledger.give_back(taken);
                        moved
                    }
                    None => taken,
                }
            })
        };
        ledger.close(PLACE);
        let quiet = ledger.is_quiet(PLACE);
        let taken = mover.join().unwrap();
        assert!(
            taken.place == 0 || !quiet,
            "it moved to a place that was given away"
        );
        ledger.give_back(taken);
        assert!(ledger.is_quiet(0));
        assert_zero(&ledger, tenant);
    });
}

#[test]
fn three_leases_of_adapters_in_cells() {
    model(2, || {
        let cells = Arc::new(AdapterCells::default());
        let open_and_close = |name: u32| {
            let cells = cells.clone();
            move || {
                let cell = cells.open(NameId(name)).expect("there is room");
                let mut seen = false;
                cells.for_each_open(|open| seen |= open == NameId(name));
                assert!(seen, "its own lease is open");
                cells.close(cell);
            }
        };
        let (a, b) = (thread::spawn(open_and_close(1)), thread::spawn(open_and_close(1)));
        open_and_close(2)();
        a.join().unwrap();
        b.join().unwrap();
        cells.for_each_open(|name| panic!("{name:?} is left over"));
    });
}

/// How often whoever waits is called.
fn calls(ledger: &Ledger) -> Arc<AtomicU32> {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    ledger.on_freed(move || {
        counted.fetch_add(1, AcqRel);
    });
    calls
}

/// Who looks for room by the bits, finds none and waits, is called once there is some.
#[test]
fn the_last_room_is_taken_while_some_is_given_back() {
    model(3, || {
        let (ledger, tenant) = ledger(2);
        let calls = calls(&ledger);
        let held = take(&ledger, tenant, BARE).unwrap();
        let taker = {
            let ledger = ledger.clone();
            thread::spawn(move || take(&ledger, tenant, BARE))
        };
        let giver = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.give_back(held))
        };
        let before = calls.load(Acquire);
        let saw_none = ledger.marks(0).full >> PLACE & 1 == 1;
        let taken = taker.join().unwrap().expect("there is room for two");
        giver.join().unwrap();
        assert_shown(&ledger);
        if saw_none {
            assert!(calls.load(Acquire) > before, "who waits is told of the room");
        }
        ledger.give_back(taken);
        assert_zero(&ledger, tenant);
    });
}

/// Settled weight is given back once, whether by the report, by the clock or by both; and not by a report that was
/// sampled before the end.
#[test]
fn a_report_and_a_new_cancel() {
    model(3, || {
        let (ledger, tenant) = ledger(2);
        let (a, b) = (
            take(&ledger, tenant, ONE).unwrap(),
            take(&ledger, tenant, ONE).unwrap(),
        );
        ledger.settle_later(a);
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.settle_later(b))
        };
        let token = ledger.sample(PLACE, tenant, LATER);
        assert_eq!((token.own, token.sequence), (2, 1));
        assert!((1..=2).contains(&token.settling));
        // The engine is idle, so what had ended by the sample is gone.
        ledger.settle(token, 0);
        other.join().unwrap();
        assert_eq!(weight(&ledger), 2 - token.settling);
        assert_eq!(ledger.settling_weight(), u64::from(2 - token.settling));
        assert_shown(&ledger);
        ledger.expire_settling(LATER);
        ledger.expire_settling(Moment::from_millis(100_000));
        assert_zero(&ledger, tenant);
    });
}

#[test]
fn a_report_and_the_clock() {
    model(3, || {
        let (ledger, tenant) = ledger(2);
        for _ in 0..2 {
            let taken = take(&ledger, tenant, ONE).unwrap();
            ledger.settle_later(taken);
        }
        ledger.expire_settling(NOW);
        let token: SampleToken = ledger.sample(PLACE, tenant, LATER);
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.expire_settling(LATER))
        };
        ledger.settle(token, 1);
        other.join().unwrap();
        assert_zero(&ledger, tenant);
    });
}

/// What a request takes is all that it asks for, also where it runs alone because it is heavier than the limit.
#[test]
fn a_heavy_request_and_a_falling_limit() {
    model(3, || {
        let word = Arc::new(ReserveWord::default());
        word.set_limit(4);
        let tenant = word.load().tenancy();
        let other = {
            let word = word.clone();
            thread::spawn(move || word.take(tenant, 9))
        };
        word.set_limit(2);
        let seen = word.load().weight();
        let taken = other.join().unwrap().expect("it is alone");
        assert_eq!(taken, 9);
        assert!(seen == 0 || seen == taken);
        word.release(taken);
        assert_eq!(word.load().weight(), 0);
    });
}

/// Whoever finds the gate of a probe open closes it in the same step, and leaves it to the next one if he says nothing.
#[test]
fn one_probe_at_a_time() {
    model(3, || {
        let (ledger, tenant) = ledger(9);
        ledger.set_gate(PLACE, Gate::Probe, true);
        let inside = Arc::new(AtomicU32::new(0));
        let probe = |ledger: Arc<Ledger>, inside: Arc<AtomicU32>| {
            move || {
                if let Some(taken) = take(&ledger, tenant, ONE) {
                    assert_eq!(inside.fetch_add(1, AcqRel), 0, "two at once");
                    inside.fetch_sub(1, AcqRel);
                    ledger.give_back(taken);
                }
            }
        };
        let other = thread::spawn(probe(ledger.clone(), inside.clone()));
        probe(ledger.clone(), inside)();
        other.join().unwrap();
        assert_eq!(ledger.marks(0).shut, 0, "the next one may come");
        ledger.set_gate(PLACE, Gate::Open(None), false);
        assert_zero(&ledger, tenant);
    });
}

/// A probe that says nothing opens no gate that was closed meanwhile.
#[test]
fn a_probe_that_ends_and_a_gate_that_closes() {
    model(3, || {
        let (ledger, tenant) = ledger(9);
        ledger.set_gate(PLACE, Gate::Probe, true);
        let taken = take(&ledger, tenant, ONE).unwrap();
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.give_back(taken))
        };
        ledger.set_gate(PLACE, Gate::Closed, true);
        other.join().unwrap();
        assert_ne!(ledger.marks(0).shut, 0);
        assert!(take(&ledger, tenant, ONE).is_none());
    });
}

/// A probe that goes in while its gate is opened for all leaves it open.
#[test]
fn a_probe_that_goes_in_and_a_gate_that_opens() {
    model(3, || {
        let (ledger, tenant) = ledger(8);
        ledger.set_gate(PLACE, Gate::Probe, true);
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                if let Some(taken) = take(&ledger, tenant, ONE) {
                    ledger.give_back(taken);
                }
            })
        };
        ledger.set_gate(PLACE, Gate::Open(None), false);
        other.join().unwrap();
        let taken = take(&ledger, tenant, ONE).expect("the gate was opened");
        ledger.give_back(taken);
        // And leaves nobody with the right to probe.
        ledger.set_gate(PLACE, Gate::Probe, true);
        let probe = take(&ledger, tenant, ONE).expect("the next one may come");
        assert!(take(&ledger, tenant, ONE).is_none());
        ledger.give_back(probe);
        assert_zero(&ledger, tenant);
    });
}

/// Whoever has become a probe before its gate was opened for all, and is for probes again, is none by then.
#[test]
fn a_probe_of_before_and_one_of_later() {
    model(3, || {
        let (ledger, tenant) = ledger(8);
        ledger.set_gate(PLACE, Gate::Probe, true);
        let first = take(&ledger, tenant, ONE).unwrap();
        let right = first.probe().unwrap();
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.give_back(first))
        };
        ledger.set_gate(PLACE, Gate::Open(None), false);
        assert!(!ledger.holds_probe(PLACE, right));
        ledger.set_gate(PLACE, Gate::Probe, true);
        let second = take(&ledger, tenant, ONE).expect("the first is void");
        assert!(take(&ledger, tenant, ONE).is_none(), "one at a time");
        other.join().unwrap();
        assert!(
            take(&ledger, tenant, ONE).is_none(),
            "the end of the first is none of the second"
        );
        ledger.give_back(second);
        assert_eq!(ledger.marks(0).shut, 0);
        assert_zero(&ledger, tenant);
    });
}

/// A gate that is put in force once more, as it was, turns nobody away.
#[test]
fn a_probe_that_goes_in_and_a_gate_that_stays() {
    model(3, || {
        let (ledger, tenant) = ledger(8);
        ledger.set_gate(PLACE, Gate::Probe, true);
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || take(&ledger, tenant, ONE))
        };
        ledger.set_gate(PLACE, Gate::Probe, true);
        let probe = other.join().unwrap().expect("the gate is for one");
        assert_ne!(ledger.marks(0).shut, 0, "scans see that it is taken");
        assert!(take(&ledger, tenant, ONE).is_none());
        ledger.give_back(probe);
        assert_eq!(ledger.marks(0).shut, 0);
        assert_zero(&ledger, tenant);
    });
}

/// Who takes no room is let in beside a probe, and neither takes the right to it nor gives it back.
#[test]
fn a_probe_and_one_without_weight() {
    model(3, || {
        let (ledger, tenant) = ledger(8);
        ledger.set_gate(PLACE, Gate::Probe, true);
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                let look = take(&ledger, tenant, CONTROL).expect("a probe shuts out no control");
                assert!(look.probe().is_none());
                ledger.give_back(look);
            })
        };
        let probe = take(&ledger, tenant, ONE).expect("the other one is no probe");
        other.join().unwrap();
        assert!(take(&ledger, tenant, ONE).is_none(), "one at a time");
        ledger.give_back(probe);
        assert_zero(&ledger, tenant);
    });
}

/// A pause neither ends a probe nor is ended by it.
#[test]
fn a_probe_that_ends_and_a_pause() {
    model(3, || {
        let (ledger, tenant) = ledger(8);
        ledger.set_gate(PLACE, Gate::Probe, true);
        let probe = take(&ledger, tenant, ONE).unwrap();
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                assert!(take(&ledger, tenant, ONE).is_none(), "one at a time, or none");
                ledger.give_back(probe);
            })
        };
        ledger.set_gate(PLACE, Gate::Closed, true);
        ledger.set_gate(PLACE, Gate::Probe, true);
        other.join().unwrap();
        assert_eq!(ledger.marks(0).shut, 0);
        let next = take(&ledger, tenant, ONE).expect("the next one may come");
        ledger.give_back(next);
        assert_zero(&ledger, tenant);
    });
}

/// Who sees the gate shut for a moment, and waits, is called once it is open.
#[test]
fn a_gate_that_opens_while_a_probe_goes_in_and_one_waits() {
    model(3, || {
        let (ledger, tenant) = ledger(8);
        let calls = calls(&ledger);
        ledger.set_gate(PLACE, Gate::Probe, true);
        let taker = {
            let ledger = ledger.clone();
            thread::spawn(move || take(&ledger, tenant, BARE))
        };
        let opener = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                // As `HealthBook::change` does.
                if ledger.set_gate(PLACE, Gate::Open(None), false) {
                    ledger.notify();
                }
            })
        };
        let before = calls.load(Acquire);
        let saw_shut = ledger.marks(0).shut >> PLACE & 1 == 1;
        let mut taken = taker.join().unwrap().expect("there is room for it");
        opener.join().unwrap();
        assert_eq!(ledger.marks(0).shut, 0, "it is open by now");
        // As the lease does with a good answer that is news: the right is void by now.
        ledger.end_probe(&mut taken);
        if saw_shut {
            assert!(
                calls.load(Acquire) > before,
                "who waits is told that the gate is open"
            );
        }
        ledger.give_back(taken);
        assert_zero(&ledger, tenant);
    });
}

/// Nor does it stay shut, with nobody who probes, where it is for probes again by then.
#[test]
fn a_gate_that_opens_and_is_for_probes_again_while_one_goes_in() {
    model(2, || {
        let (ledger, tenant) = ledger(8);
        let calls = calls(&ledger);
        ledger.set_gate(PLACE, Gate::Probe, true);
        let taker = {
            let ledger = ledger.clone();
            thread::spawn(move || take(&ledger, tenant, BARE))
        };
        let changer = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                for gate in [Gate::Open(None), Gate::Probe] {
                    if ledger.set_gate(PLACE, gate, true) {
                        ledger.notify();
                    }
                }
            })
        };
        let before = calls.load(Acquire);
        let saw_shut = ledger.marks(0).shut >> PLACE & 1 == 1;
        let taken = taker.join().unwrap();
        changer.join().unwrap();
        if let Some(mut taken) = taken {
            ledger.end_probe(&mut taken);
            ledger.give_back(taken);
        }
        assert_eq!(ledger.marks(0).shut, 0, "the next one may be the probe");
        if saw_shut {
            assert!(calls.load(Acquire) > before, "who waits is told of it");
        }
        assert_zero(&ledger, tenant);
    });
}

/// The same as for the last room, where the limit falls: nothing but `set_limit` itself can say so.
#[test]
fn a_limit_falls_while_some_is_given_back() {
    model(3, || {
        let (ledger, tenant) = ledger(2);
        let calls = calls(&ledger);
        let held = take(&ledger, tenant, BARE).unwrap();
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.set_limit(PLACE, 1))
        };
        let giver = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.give_back(held))
        };
        let before = calls.load(Acquire);
        let saw_none = ledger.marks(0).full >> PLACE & 1 == 1;
        other.join().unwrap();
        giver.join().unwrap();
        assert_shown(&ledger);
        if saw_none {
            assert!(calls.load(Acquire) > before, "who waits is told of the room");
        }
        assert_zero(&ledger, tenant);
    });
}
