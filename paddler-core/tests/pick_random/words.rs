//! Do whole words of upstreams come to the same as one upstream after another?

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use paddler_core::schedule::costs::{in_flight_share, kv_pressure, prefill_product, queue, weighted};
use paddler_core::schedule::filters::{
    Bound, Unknown, fresh, kv_cache, least_kv_cache, least_queue, lora_active, lora_low_cost, lora_room,
    queue_depth, slot,
};
use paddler_core::schedule::{
    CandidateSet, Class, Cost, Explanation, Filter, FilterError, Node, PickCx, Reads, Scratch, Signals,
    filter_fn,
};
use paddler_core::upstream::{Lease, UpstreamIndex};
use proptest::collection::vec;
use proptest::prelude::*;

use super::{
    AnyFilter, Member, build, cost, hold, members, pool, question, signals, through_json, words_of_members,
};

/// Small pools and wide ones alike.
fn pools() -> impl Strategy<Value = Vec<Member>> {
    prop_oneof![members(), words_of_members()]
}

/// The built-in filters that look at whole words, each with the rule for one upstream that it must agree with.
fn by_words() -> Vec<(AnyFilter, AnyFilter)> {
    fn pair<F>(by_words: impl Filter, rule: F) -> (AnyFilter, AnyFilter)
    where
        F: Fn(&PickCx<'_>, UpstreamIndex) -> bool + Send + Sync + 'static,
    {
        (Arc::new(by_words), Arc::new(filter_fn("rule", rule)))
    }
    let room = |cx: &PickCx<'_>, upstream| cx.adapters(upstream).is_some_and(|(active, max)| active < max);
    let age = Duration::from_secs(10);
    let mut pairs = vec![
        pair(slot(), |cx, upstream| cx.fits(upstream)),
        pair(slot(), has_room),
        pair(fresh(age), move |cx, upstream| {
            cx.age(upstream).is_some_and(|is| is <= age)
        }),
        pair(lora_active(), |cx, upstream| cx.adapter_active(upstream)),
        pair(lora_room(), room),
        pair(lora_low_cost(), move |cx, upstream| {
            cx.adapter_active(upstream) || room(cx, upstream)
        }),
    ];
    let limits = [
        0.0,
        0.5,
        3.0,
        5.0,
        40.0,
        f64::from(u32::MAX - 1),
        1e12,
        -1.0,
        f64::NAN,
        f64::INFINITY,
    ];
    for bound in limits
        .into_iter()
        .flat_map(|limit| [Bound::Below(limit), Bound::AtMost(limit)])
    {
        for unknown in [Unknown::Pass, Unknown::Fail] {
            let pass = unknown == Unknown::Pass;
            pairs.push(pair(queue_depth(bound).unknown(unknown), move |cx, upstream| {
                cx.waiting(upstream)
                    .map_or(pass, |waiting| bound.holds(f64::from(waiting)))
            }));
            pairs.push(pair(kv_cache(bound).unknown(unknown), move |cx, upstream| {
                cx.kv_cache_usage(upstream)
                    .map_or(pass, |usage| bound.holds(usage))
            }));
        }
    }
    pairs
}

#[test]
fn filters_by_words_agree_with_their_rules_for_one() {
    let pairs = by_words();
    let which = 0..pairs.len();
    hold(
        1_000,
        (pools(), which, question(), signals()),
        |(members, which, question, signals)| {
            let (by_words, rule) = pairs[which].clone();
            let kept = |filter: AnyFilter| {
                let tree = pool::tree(signals, [Node::require(filter), Node::random()]);
                let (_board, snapshot, _leases) = build(tree, &members);
                let mut why = Explanation::default();
                let _outcome = question.put(|ask| snapshot.pick(ask, &mut Scratch::default(), &mut why));
                why.survivors
            };
            prop_assert_eq!(kept(by_words), kept(rule));
            Ok(())
        },
    );
}

/// A cost that is asked of one upstream at a time, whatever it could do.
#[derive(Debug)]
struct OneByOne(Arc<dyn Cost>);

impl Cost for OneByOne {
    fn cost(&self, cx: &PickCx<'_>, upstream: UpstreamIndex) -> Result<Option<f32>, FilterError> {
        self.0.cost(cx, upstream)
    }
}

#[test]
fn who_costs_least_is_the_same_for_many_at_once_and_one_by_one() {
    hold(
        1_000,
        (pools(), cost(), question(), signals()),
        |(members, cost, question, signals)| {
            let picked = |cost: Arc<dyn Cost>| {
                let tree = pool::tree(signals, [Node::least(cost)]);
                let (_board, snapshot, _leases) = build(tree, &members);
                let outcome = question.put(|ask| snapshot.pick(ask, &mut Scratch::default(), &mut ()));
                snapshot.ids(&outcome)
            };
            prop_assert_eq!(picked(cost.clone()), picked(Arc::new(OneByOne(cost))));
            Ok(())
        },
    );
}

/// Whether the request fits, by what is open there now.
fn has_room(cx: &PickCx<'_>, upstream: UpstreamIndex) -> bool {
    let (own, asked) = (cx.snapshot.ledger().own_load(upstream), cx.facts.weight);
    own.limit
        .is_none_or(|limit| asked == 0 || own.weight == 0 && limit > 0 || own.weight + asked <= limit)
}

/// Who is close to the least, told as it is defined: with all values side by side.
#[derive(Debug)]
enum LeastByDefinition {
    Queue,
    KvCache,
}

impl Filter for LeastByDefinition {
    fn narrow(&self, cx: &PickCx<'_>, set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        let value = |upstream| match self {
            Self::Queue => cx.waiting(upstream).map(f64::from),
            Self::KvCache => cx.kv_cache_usage(upstream),
        };
        let mut known: Vec<f64> = set.iter().filter_map(value).collect();
        known.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (known.first(), known.last()) else {
            return Ok(());
        };
        let median = known[(known.len() - 1) / 2];
        let part = (most.max(0.0) - least) / set.len() as f64;
        let part = match self {
            Self::Queue => part.floor(),
            Self::KvCache => part,
        };
        set.retain(|upstream| value(upstream).unwrap_or(median) <= least + part);
        Ok(())
    }
}

#[test]
fn the_least_are_those_of_the_definition() {
    hold(
        1_500,
        (pools(), question(), signals()),
        |(members, question, signals)| {
            let (mut board, ..) = build(pool::tree(signals, [Node::random()]), &members);
            let mut kept = |filter: AnyFilter| {
                board.set_tree(pool::tree(signals, [Node::require(filter), Node::random()]));
                let snapshot = board.publish(super::NOW);
                let mut why = Explanation::default();
                let _outcome = question.put(|ask| snapshot.pick(ask, &mut Scratch::default(), &mut why));
                why.survivors
            };
            prop_assert_eq!(
                kept(Arc::new(least_queue())),
                kept(Arc::new(LeastByDefinition::Queue))
            );
            prop_assert_eq!(
                kept(Arc::new(least_kv_cache())),
                kept(Arc::new(LeastByDefinition::KvCache))
            );
            Ok(())
        },
    );
}

/// Looks on from within a walk, and keeps everybody. It is no judge: what it finds wrong it panics at.
struct Look<F> {
    reads: Reads,
    look: F,
}

impl<F> fmt::Debug for Look<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("look")
    }
}

impl<F: Fn(&PickCx<'_>) + Send + Sync + 'static> Filter for Look<F> {
    fn narrow(&self, cx: &PickCx<'_>, _set: &mut CandidateSet<'_>) -> Result<(), FilterError> {
        (self.look)(cx);
        Ok(())
    }

    fn reads(&self) -> Reads {
        self.reads
    }
}

fn built_in() -> Vec<Arc<dyn Cost>> {
    let plain: [Arc<dyn Cost>; 4] = [
        Arc::new(queue()),
        Arc::new(in_flight_share()),
        Arc::new(kv_pressure()),
        Arc::new(prefill_product()),
    ];
    let sum = weighted([0.5, 2.0, -1.0, 1e-3].into_iter().zip(plain.clone()));
    plain.into_iter().chain([Arc::new(sum) as _]).collect()
}

/// At each place, `None` and NaN being the same.
fn costs_agree(cost: &dyn Cost, cx: &PickCx<'_>) {
    let places = cx.snapshot.iter().map(|(upstream, _)| upstream.get()).max();
    let words = places.map_or(0, |last| last / 64 + 1);
    let by_words: Vec<[f32; 64]> = (0..words)
        .map(|word| {
            let mut costs = [-1.0; 64];
            cost.costs_of_word(cx, word, &mut costs);
            costs
        })
        .collect();
    for (upstream, _) in cx.snapshot.iter() {
        let alone = cost.cost(cx, upstream).expect("it can judge").unwrap_or(f32::NAN);
        let among = by_words[upstream.get() / 64][upstream.get() % 64];
        assert!(
            alone == among || alone.is_nan() && among.is_nan(),
            "{cost:?} at {}: {alone} alone, {among} in its word",
            upstream.get()
        );
    }
}

#[test]
fn costs_of_a_word_are_those_of_each_place() {
    hold(
        300,
        (pools(), question(), signals()),
        |(members, question, signals)| {
            let (mut board, _, _leases) = build(pool::tree(signals, [Node::random()]), &members);
            for cost in built_in() {
                assert!(cost.by_words());
                let reads = cost.reads();
                let look = move |cx: &PickCx<'_>| costs_agree(&*cost, cx);
                board.set_tree(pool::tree(
                    signals,
                    [Node::require(Look { reads, look }), Node::random()],
                ));
                let snapshot = board.publish(super::NOW);
                let _outcome = question.put(|ask| snapshot.pick(ask, &mut Scratch::default(), &mut ()));
            }
            Ok(())
        },
    );
}

/// What a tree can look at, and which of the counters are then there: weight, requests, prompt tokens, and who fits.
fn readings() -> Vec<(Reads, [bool; 4])> {
    vec![
        (Reads::NONE, [false; 4]),
        (in_flight_share().reads(), [true, false, false, false]),
        (queue().reads(), [true, false, false, false]),
        (slot().reads(), [false, false, false, true]),
        (Reads::LOAD, [true, false, false, true]),
        (Reads::REQUESTS, [false, true, false, false]),
        (Reads::PREFILL, [false, false, true, false]),
        (Reads::ALL, [true; 4]),
    ]
}

/// That the walk sees what is open now.
fn sees_what_is_open([weight, requests, prefill, fits]: [bool; 4], cx: &PickCx<'_>) {
    for (upstream, _) in cx.snapshot.iter() {
        let (own, at) = (cx.snapshot.ledger().own_load(upstream), upstream.get());
        if weight {
            assert_eq!(cx.own_weight(upstream), own.weight, "weight at {at}");
        }
        if requests {
            assert_eq!(cx.own_requests(upstream), own.requests, "requests at {at}");
        }
        if prefill {
            assert_eq!(cx.prefill_tokens(upstream), own.prefill_tokens, "tokens at {at}");
        }
        if fits {
            assert_eq!(cx.fits(upstream), has_room(cx, upstream), "room at {at}");
        }
    }
}

/// One more walk with the memory of those before.
#[derive(Debug, Clone)]
struct Turn {
    reads: usize,
    weight: u32,
    /// Of the requests that are open, so many in four end before it.
    end: usize,
    recorded: bool,
}

fn turn() -> impl Strategy<Value = Turn> {
    let end = prop::sample::select(vec![0, 0, 1, 3, 4]);
    (0..readings().len(), 0..4u32, end, prop::bool::weighted(0.2)).prop_map(
        |(reads, weight, end, recorded)| Turn {
            reads,
            weight,
            end,
            recorded,
        },
    )
}

/// Ends so many in four, in each of the ways in which nothing settles.
fn end(leases: &mut Vec<Lease>, many: usize) {
    let all = std::mem::take(leases).into_iter().enumerate();
    for (at, mut lease) in all {
        if at % 4 >= many {
            leases.push(lease);
        } else if at % 8 < 4 {
            lease.sent();
            lease.complete();
        }
    }
}

#[test]
fn a_walk_sees_what_is_open_at_each_place_whatever_the_ones_before_it_read() {
    const MANY: usize = 16;
    let crowded = Cell::new(0);
    hold(
        400,
        (pools(), question(), vec(turn(), 1..8)),
        |(members, mut question, turns)| {
            question.only = None;
            let (mut board, snapshot, mut leases) =
                build(pool::tree(Signals::Corrected, [Node::random()]), &members);
            let mut scratch = Scratch::default();
            for turn in turns {
                end(&mut leases, turn.end);
                let open = |(upstream, _): &(UpstreamIndex, _)| {
                    snapshot.ledger().own_load(*upstream).requests > 0 && upstream.get() < 64
                };
                crowded.set(crowded.get() + usize::from(snapshot.iter().filter(open).count() >= MANY));
                let (reads, there) = readings()[turn.reads];
                let look = move |cx: &PickCx<'_>| sees_what_is_open(there, cx);
                let nodes = [
                    Node::require_or(Look { reads, look }, Class::Shed),
                    Node::random(),
                ];
                board.set_tree(pool::tree(Signals::Corrected, nodes));
                let snapshot = board.publish(super::NOW);
                question.facts.weight = turn.weight;
                question.put(|ask| {
                    if turn.recorded {
                        let (outcome, record) = snapshot.pick_recorded(ask, &mut scratch, &mut ());
                        let again = snapshot.replay(&through_json(&record), &mut scratch, &mut ());
                        assert_eq!(again, outcome);
                    } else {
                        let _outcome = snapshot.pick(ask, &mut scratch, &mut ());
                    }
                });
            }
            Ok(())
        },
    );
    assert!(crowded.get() > 100, "many were in use {} times", crowded.get());
}
