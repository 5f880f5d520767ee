//! What is a loss, and what is no fault of the router's.

use super::*;

fn outcome(status: Option<u16>, ending: Ending, check: Result<(), Corrupt>) -> Outcome {
    Outcome {
        id: "c1".into(),
        began: 0,
        ended: 1,
        status,
        reason: String::new(),
        bytes: 0,
        ending,
        check,
        error_event: false,
    }
}

fn line(text: &str) -> JournalLine {
    serde_json::from_str(text).unwrap()
}

#[test]
fn journals_tell_what_was_killed_and_what_ended() {
    let mut journals = Journals::default();
    journals.add(
        0,
        &[
            line(r#"{"ms":0,"id":"","event":"started"}"#),
            line(r#"{"ms":1,"id":"a","event":"began","path":"/","faults":["reset"]}"#),
            line(r#"{"ms":1,"id":"b","event":"began","path":"/","faults":[]}"#),
            line(r#"{"ms":2,"id":"a","event":"ended","end":"cut","bytes":0}"#),
            line(r#"{"ms":0,"id":"","event":"started"}"#),
        ],
    );
    assert_eq!(
        (journals.of("a")[0].end, journals.of("a")[0].killed),
        (Some(End::Cut), false)
    );
    assert_eq!(
        (journals.of("b")[0].end, journals.of("b")[0].killed),
        (None, true)
    );
    assert!(journals.of("c").is_empty());
}

#[test]
fn no_answer_is_a_loss_while_somebody_was_able() {
    let none = outcome(None, Ending::Broken("reset".into()), Err(Corrupt::Unfinished));
    assert!(matches!(judge(&none, &[], &|_, _| true), Verdict::Lost(_)));
    assert!(matches!(judge(&none, &[], &|_, _| false), Verdict::Excused(_)));
    let busy = outcome(Some(503), Ending::Whole, Err(Corrupt::Unfinished));
    let loading = Seen {
        answered: Some(503),
        ..Seen::default()
    };
    assert!(matches!(
        judge(&busy, std::slice::from_ref(&loading), &|_, _| true),
        Verdict::Lost(_)
    ));
    let broken = outcome(Some(500), Ending::Whole, Err(Corrupt::Unfinished));
    let own = Seen {
        answered: Some(500),
        ..Seen::default()
    };
    assert!(matches!(
        judge(&broken, &[own], &|_, _| true),
        Verdict::Excused(_)
    ));
}

#[test]
fn an_answer_that_looks_whole_must_be() {
    let good = outcome(Some(200), Ending::Whole, Ok(()));
    assert_eq!(judge(&good, &[], &|_, _| true), Verdict::Good);
    for error in [Corrupt::Altered, Corrupt::Unfinished] {
        let bad = outcome(Some(200), Ending::Whole, Err(error));
        assert!(matches!(
            judge(&bad, &[Seen::default()], &|_, _| true),
            Verdict::Corrupt(_)
        ));
    }
    let mut told = outcome(Some(200), Ending::Whole, Err(Corrupt::Unfinished));
    told.error_event = true;
    let whole = Seen {
        end: Some(End::Whole),
        ..Seen::default()
    };
    assert!(
        matches!(judge(&told, &[whole], &|_, _| true), Verdict::Lost(_)),
        "its engine sent all of it"
    );
    let killed = Seen {
        killed: true,
        ..Seen::default()
    };
    assert!(matches!(
        judge(&told, &[killed], &|_, _| true),
        Verdict::Excused(_)
    ));
    let given_up = Seen {
        engine: 3,
        end: Some(End::Cancelled),
        ..Seen::default()
    };
    let given_up = std::slice::from_ref(&given_up);
    assert!(
        matches!(judge(&told, given_up, &|_, _| true), Verdict::Lost(_)),
        "its engine was well"
    );
    assert!(matches!(
        judge(&told, given_up, &|engine, _| engine != Some(3)),
        Verdict::Excused(_)
    ));
}
