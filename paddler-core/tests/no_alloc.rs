//! Does a pick allocate nothing in the steady state?
//!
//! Allocations are counted on the picking thread alone, so that what other threads do does not show.

mod pool;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use allocation_counter::{AllocationInfo, measure};
use paddler_core::Moment;
use paddler_core::request::Facts;
use paddler_core::schedule::{Ask, Node, NodeCounters, Scratch, Signals, Tree, costs, filters, trees};
use paddler_core::status::{Health, Published, Report, Snapshot, StatusBoard, StatusEvent};
use paddler_core::upstream::{ModelEntry, Models, UpstreamId};
use pool::{ids, spec};

const SIZES: [usize; 5] = [1, 64, 65, 1_000, 20_000];
const TREES: [fn() -> Tree; 3] = [trees::seed, trees::balancer, trees::gateway];

fn upsert(board: &mut StatusBoard, place: usize) {
    let adapter = |name| ModelEntry::adapter(name, "base");
    let models = vec![ModelEntry::new("base"), adapter("active"), adapter("idle")];
    let spec = spec(&format!("upstream-{place}")).models(Models::Listed(models));
    let id = spec.id.clone();
    board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
    // Every tenth says nothing, so that medians are taken.
    if place % 10 != 9 {
        let mut report = pool::slots(place as u32 % 4, 8);
        report.health = Some(Health::Ready);
        report.waiting = Some(place as u32 % 3);
        report.kv_cache_usage = Some(f64::from(place as u32 % 50) / 100.0);
        let running: &[&str] = if place.is_multiple_of(7) { &["active"] } else { &[] };
        report.adapters = Some(pool::adapters(Some(2), running, &[]));
        board.apply(
            StatusEvent::Report {
                id,
                report,
                sample: None,
            },
            Moment::ZERO,
        );
    }
}

fn board(tree: Tree, upstreams: usize) -> StatusBoard {
    let mut board = StatusBoard::new(tree);
    (0..upstreams).for_each(|place| upsert(&mut board, place));
    board.publish(Moment::ZERO);
    board
}

/// Each kind of request in turn, picked and reserved, its lease led to its end.
fn round(
    published: &Published,
    scratch: &mut Scratch,
    seed: u64,
    except: &[UpstreamId],
    only: &[UpstreamId],
) -> usize {
    let snapshot = published.load();
    let mut reserved = 0;
    for model in [
        None,
        Some("base"),
        Some("active"),
        Some("idle"),
        Some("unheard_of"),
    ] {
        for priority in [0, -1] {
            let mut facts = Facts::new().tokens(100).session("s").priority(priority);
            facts.model = model;
            let ask = Ask::new(&facts, Moment::ZERO, seed);
            let wide = snapshot.pick(&ask.want(4), scratch, &mut ());
            let narrow = snapshot.pick(&ask.except(except), scratch, &mut ());
            let within = snapshot.pick(&ask.only(only), scratch, &mut ());
            reserved += [wide, narrow, within]
                .iter()
                .filter(|outcome| outcome.picked().is_some())
                .count();
            if let Ok(mut lease) = snapshot.reserve(&ask, scratch, &mut ()) {
                lease.sent();
                lease.first_byte();
                lease.complete();
                reserved += 1;
            }
        }
    }
    reserved
}

fn rounds(published: &Published, scratch: &mut Scratch, rounds: u64) -> (usize, AllocationInfo) {
    let except = ids(&["upstream-0", "upstream-63", "upstream-64"]);
    let only = ids(&["upstream-0", "upstream-1", "upstream-64", "gone"]);
    let mut reserved = 0;
    let counted = measure(|| {
        for seed in 0..rounds {
            reserved += round(published, scratch, seed, &except, &only);
        }
    });
    (reserved, counted)
}

#[test]
fn allocations_are_seen() {
    let counted = measure(|| drop(std::hint::black_box(vec![1])));
    assert_eq!(counted.count_total, 1);
}

#[test]
fn picks_and_reservations_allocate_nothing() {
    for tree in TREES {
        for upstreams in SIZES {
            let board = board(tree(), upstreams);
            let published = board.published();
            let mut scratch = Scratch::default();
            let (_, first) = rounds(&published, &mut scratch, 1);
            assert!(
                first.count_total > 0,
                "the scratch grows to the size of the snapshot"
            );
            let (reserved, counted) =
                rounds(&published, &mut scratch, if upstreams > 1_000 { 2 } else { 20 });
            assert!(reserved > 0);
            assert_eq!(
                counted.count_total,
                0,
                "{upstreams} upstreams, {:?}",
                board.published().load().tree()
            );
        }
    }
}

#[test]
fn counting_what_each_node_does_allocates_nothing() {
    let board = board(trees::gateway(), 100);
    let snapshot = board.published().load_full();
    let counters = NodeCounters::new(snapshot.tree());
    let facts = Facts::new().model("active");
    let mut scratch = Scratch::default();
    let mut pick = || snapshot.pick(&Ask::new(&facts, Moment::ZERO, 1), &mut scratch, &mut &counters);
    assert!(pick().picked().is_some());
    let counted = measure(|| assert!(pick().picked().is_some()));
    assert_eq!(counted.count_total, 0);
}

/// A smaller snapshot after a larger one, and a larger one again.
#[test]
fn a_scratch_that_has_seen_the_largest_snapshot_is_large_enough() {
    let mut scratch = Scratch::default();
    let (small, large) = (board(trees::gateway(), 3), board(trees::gateway(), 500));
    rounds(&large.published(), &mut scratch, 1);
    for board in [&small, &large, &small] {
        assert_eq!(rounds(&board.published(), &mut scratch, 3).1.count_total, 0);
    }
}

/// More of one cost than ever before, more of whom some say nothing, and more who are let in at all.
#[test]
fn a_scratch_is_large_enough_however_many_there_are_to_compare() {
    const UPSTREAMS: usize = 300;
    let queue = || Node::least(costs::queue());
    let two = || Node::two_choices(costs::queue());
    let median = || Node::list([Node::require(filters::least_queue()), Node::random()]);
    let nodes: [&dyn Fn() -> Node; 3] = [&queue, &two, &median];
    for node in nodes {
        let mut board = board(Tree::new(Signals::Corrected, node()).unwrap(), UPSTREAMS);
        let say = |board: &mut StatusBoard, waiting: &dyn Fn(usize) -> Option<u32>| {
            for place in 0..UPSTREAMS {
                let id = spec(&format!("upstream-{place}")).id;
                board.set_draining(id.as_str(), waiting(place).is_some_and(|waiting| waiting > 3));
                let mut report = Report::new();
                report.waiting = waiting(place);
                let event = StatusEvent::Report {
                    id,
                    report,
                    sample: None,
                };
                board.apply(event, Moment::ZERO);
            }
            board.publish(Moment::ZERO)
        };
        let facts = Facts::new();
        let mut scratch = Scratch::default();
        let mut pick = |snapshot: &Snapshot| {
            measure(|| {
                let outcome = snapshot.pick(&Ask::new(&facts, Moment::ZERO, 1), &mut scratch, &mut ());
                assert!(outcome.picked().is_some());
            })
        };
        pick(&say(&mut board, &|place| Some(place as u32)));
        pick(&say(&mut board, &|place| (place > 0).then_some(place as u32)));
        let all_tie = pick(&say(&mut board, &|_| Some(0)));
        let some_unknown = pick(&say(&mut board, &|place| (place > 200).then_some(0)));
        assert_eq!(
            (all_tie.count_total, some_unknown.count_total),
            (0, 0),
            "{:?}",
            node()
        );
    }
}

#[test]
fn nor_while_another_thread_publishes_and_upstreams_come_and_go() {
    const UPSTREAMS: usize = 130;
    for tree in TREES {
        let mut board = board(tree(), UPSTREAMS);
        // A place is left to whoever still has leases open on it, so the board needs some more than are in use.
        (UPSTREAMS..2 * UPSTREAMS).for_each(|place| upsert(&mut board, place));
        board.publish(Moment::ZERO);
        let published = board.published();
        let mut scratch = Scratch::default();
        rounds(&published, &mut scratch, 1);
        (UPSTREAMS..2 * UPSTREAMS).for_each(|place| {
            board.apply(
                StatusEvent::Remove(spec(&format!("upstream-{place}")).id),
                Moment::ZERO,
            );
        });
        board.publish(Moment::ZERO);

        let turns = AtomicUsize::new(0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    for place in (turns.load(Relaxed) % 5..UPSTREAMS).step_by(5) {
                        let id = spec(&format!("upstream-{place}")).id;
                        board.apply(StatusEvent::Remove(id), Moment::ZERO);
                    }
                    board.publish(Moment::ZERO);
                    (0..UPSTREAMS).for_each(|place| upsert(&mut board, place));
                    board.publish(Moment::ZERO);
                    turns.fetch_add(1, Relaxed);
                }
            });
            let (mut reserved, mut allocations) = (0, 0);
            while turns.load(Relaxed) < 20 || reserved < 2_000 {
                let (some, counted) = rounds(&published, &mut scratch, 5);
                reserved += some;
                allocations += counted.count_total;
            }
            done.store(true, Relaxed);
            assert_eq!(allocations, 0);
        });
    }
}
