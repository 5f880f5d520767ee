use super::*;
use crate::observe::End;
use crate::request::Facts;

fn trail(id: &str, arrived: u64) -> Trail {
    let mut facts = RequestFacts::from(Facts::new().model("m"));
    facts.detail = Detail::Why;
    Trail {
        class: "chat",
        facts: Some(facts),
        ..Trail::begun(id, "POST", "/", Moment::from_nanos(arrived))
    }
}

fn rules(keep: usize, per_second: u32) -> DecisionRules {
    DecisionRules {
        keep,
        per_second,
        ..DecisionRules::default()
    }
}

fn told(decisions: &Decisions) -> Vec<(String, &'static str)> {
    let all = decisions.list(&Wanted::default(), Moment::ZERO);
    all.into_iter().map(|one| (one.id, one.state)).collect()
}

#[test]
fn two_requests_of_one_id_stand_there_each_and_each_ends_in_its_place() {
    let decisions = Decisions::new(rules(3, 100));
    let (first, second) = (trail("twice", 1), trail("twice", 2));
    decisions.placed(&first);
    decisions.placed(&second);
    decisions.placed(&trail("other", 3));
    let ended = Trail {
        end: Some(End::Complete),
        ..first
    };
    decisions.ended(&ended);
    let twice = |state| ("twice".to_owned(), state);
    let other = ("other".to_owned(), "running");
    assert_eq!(
        told(&decisions),
        [other.clone(), twice("running"), twice("complete")]
    );
    assert_eq!(
        decisions.find("twice", Moment::ZERO).unwrap().state,
        "running",
        "the last one"
    );
    decisions.placed(&trail("more", 4));
    decisions.placed(&trail("again", 5));
    assert_eq!(decisions.find("twice", Moment::ZERO), None, "both have gone");
    assert_eq!(decisions.ring().by_key.len(), 3);
    decisions.set_rules(rules(1, 100));
    assert_eq!(told(&decisions), [("again".to_owned(), "running")]);
    assert_eq!(decisions.ring().by_key.len(), 1);
    // What is not in it any more when it ends, was recorded all the same.
    decisions.ended(&ended);
    assert_eq!(told(&decisions), [twice("complete")]);
}

#[test]
fn no_more_are_recorded_a_second_than_may() {
    let decisions = Decisions::new(rules(10, 2));
    let mut facts = RequestFacts::new();
    let mut recorded = |millis| {
        facts.arrived = Moment::from_millis(millis);
        decisions.detail(&facts) == Detail::Why
    };
    assert_eq!(
        [0, 10, 999, 1000, 1001, 1002].map(&mut recorded),
        [true, true, false, true, true, false]
    );
    assert_eq!(decisions.counts(), (6, 4));
    let none = Decisions::new(rules(0, 2));
    assert_eq!(none.detail(&RequestFacts::new()), Detail::Nothing);
}
