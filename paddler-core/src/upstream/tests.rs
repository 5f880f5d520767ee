//! Cells one by one. What they come to together is tested through the board, in `tests/`.

use std::time::Duration;

use super::adapters::{AdapterCells, NameId};
use super::gates::Gate;
use super::ledger::{Ledger, Take};
use super::young::{Span, YoungWeight};
use crate::Moment;

const ONE: Take = Take {
    weight: 1,
    tokens: 0,
    adapter: None,
};

fn open_names(cells: &AdapterCells) -> Vec<u32> {
    let mut names = Vec::new();
    cells.for_each_open(|name| names.push(name.0));
    names
}

#[test]
fn an_adapter_counts_until_its_last_lease_ends() {
    let cells = AdapterCells::default();
    let (a, b) = (cells.open(NameId(7)).unwrap(), cells.open(NameId(7)).unwrap());
    assert_eq!(a, b);
    cells.close(a);
    assert_eq!(open_names(&cells), [7]);
    cells.close(b);
    assert!(open_names(&cells).is_empty());
}

#[test]
fn a_cell_is_used_again_and_the_overflow_is_refused() {
    let cells = AdapterCells::default();
    let held: Vec<_> = (0..16).map(|name| cells.open(NameId(name)).unwrap()).collect();
    assert_eq!(cells.open(NameId(99)), None);
    assert!(
        cells.open(NameId(3)).is_some(),
        "a known adapter needs no new cell"
    );
    cells.close(held[0]);
    assert_eq!(cells.open(NameId(99)), Some(held[0]));
    assert!(!open_names(&cells).contains(&0));
}

const AGE: Duration = Duration::from_millis(20);

fn young(cells: &YoungWeight, at: Moment) -> u32 {
    cells.since(at, AGE)
}

#[test]
fn weight_is_young_for_the_whole_age_and_not_for_a_span_more() {
    for start in 0..16 {
        let cells = YoungWeight::default();
        let begin = Moment::from_nanos(100_000_000 + start * 500_000);
        cells.add(Span::of(begin), 3);
        for half_ms in 0..100 {
            let age = Duration::from_micros(500 * half_ms);
            let seen = young(&cells, begin.saturating_add(age));
            if age < AGE {
                assert_eq!(seen, 3, "taken {start} half ms into a span, {age:?} old");
            } else if age >= AGE + Duration::from_millis(4) {
                assert_eq!(seen, 0, "taken {start} half ms into a span, {age:?} old");
            }
        }
    }
}

#[test]
fn what_has_ended_is_not_young() {
    let at = |ms| Span::of(Moment::from_millis(ms));
    let cells = YoungWeight::default();
    cells.add(at(8), 2);
    cells.add(at(9), 5);
    cells.remove(at(8), 2);
    assert_eq!(young(&cells, Moment::from_millis(10)), 5);
    // 32 ms later the cell is another span's: an old end must not touch it.
    cells.add(at(40), 1);
    cells.remove(at(8), 5);
    assert_eq!(young(&cells, Moment::from_millis(40)), 1);
}

#[test]
fn weight_from_before_the_ring_is_not_young() {
    let at = |ms| Span::of(Moment::from_millis(ms));
    let cells = YoungWeight::default();
    cells.add(at(40), 1);
    cells.add(at(8), 6);
    assert_eq!(young(&cells, Moment::from_millis(40)), 1);
}

#[test]
fn the_first_moment_counts() {
    let cells = YoungWeight::default();
    assert_eq!(young(&cells, Moment::ZERO), 0);
    cells.add(Span::of(Moment::ZERO), 4);
    assert_eq!(young(&cells, Moment::ZERO), 4);
}

#[test]
fn a_full_cell_stays_full() {
    let cells = YoungWeight::default();
    let span = Span::of(Moment::ZERO);
    cells.add(span, u32::MAX);
    cells.add(span, u32::MAX);
    assert_eq!(young(&cells, Moment::ZERO), (1 << 24) - 1);
    assert_eq!(
        young(&cells, Moment::from_millis(40)),
        0,
        "the number of the span is untouched"
    );
}

#[test]
fn answers_of_one_upstream_are_not_counted_for_the_next_at_its_place() {
    let ledger = Ledger::new(Duration::from_secs(10));
    let first = ledger.open(3, 8);
    ledger.answered(3, first);
    ledger.answered(3, first);
    assert_eq!(ledger.take_answered(3), 2);
    ledger.answered(3, first);
    ledger.close(3);
    let next = ledger.open(3, 8);
    assert_eq!(ledger.take_answered(3), 0);
    ledger.answered(3, first);
    assert_eq!(ledger.take_answered(3), 0, "nor those that come late");
    ledger.answered(3, next);
    assert_eq!(ledger.take_answered(3), 1);
}

#[test]
fn a_place_begins_with_an_open_gate() {
    let ledger = Ledger::new(Duration::from_secs(10));
    for gate in [Gate::Closed, Gate::Probe, Gate::LastResort, Gate::Open(Some(1))] {
        ledger.open(3, 8);
        ledger.set_gate(3, gate, true);
        ledger.close(3);
        let tenancy = ledger.open(3, 8);
        assert_eq!(
            (
                ledger.marks(0).shut,
                ledger.marks(0).last_resort,
                ledger.is_watched(3)
            ),
            (0, 0, false)
        );
        let take = || ledger.try_take(3, tenancy, ONE, Moment::ZERO);
        let taken = [take().unwrap(), take().unwrap()];
        taken.into_iter().for_each(|taken| ledger.give_back(taken));
        ledger.close(3);
    }
}

#[test]
fn a_probe_that_has_spoken_lets_the_next_one_know() {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    let ledger = Ledger::new(Duration::from_secs(10));
    let told = std::sync::Arc::new(AtomicU32::new(0));
    let count = told.clone();
    ledger.on_freed(move || {
        count.fetch_add(1, Relaxed);
    });
    let tenancy = ledger.open(3, 8);
    ledger.set_gate(3, Gate::Probe, true);
    let take = || ledger.try_take(3, tenancy, ONE, Moment::ZERO);
    let mut first = take().unwrap();
    assert!(take().is_none());
    ledger.end_probe(&mut first);
    assert_eq!(told.load(Relaxed), 1);
    let mut second = take().unwrap();
    // Where nobody may come, nobody is told.
    ledger.set_gate(3, Gate::Closed, true);
    ledger.end_probe(&mut second);
    assert_eq!((told.load(Relaxed), ledger.marks(0).shut), (1, 1 << 3));
    ledger.give_back(first);
    ledger.give_back(second);
}
