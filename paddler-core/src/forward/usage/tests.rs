//! Each dialect says what it used, however it is cut.

use http::HeaderValue;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use proptest::prelude::*;

use super::Form::{Events, Lines, Whole};
use super::*;

/// Tokens of the prompt, if that is told, and of the answer.
type Read = Option<(Option<u64>, u64)>;

fn read(form: Form, pieces: &[&[u8]]) -> Read {
    let mut usage = Usage::new(form);
    pieces.iter().for_each(|piece| usage.saw(piece));
    usage.used().map(|used| match used {
        Used::Tokens { prompt, output } => (prompt, output),
        Used::Nothing => unreachable!(),
    })
}

/// (what form it has, the answer, what it used)
const ANSWERS: &[(Form, &str, Read)] = &[
    (
        Whole,
        r#"{"choices":[{"message":{"content":"Hi"}}],"usage":{"prompt_tokens":12,"completion_tokens":34,"total_tokens":46,
        "completion_tokens_details":{"reasoning_tokens":9}}}"#,
        Some((Some(12), 34)),
    ),
    (
        Events,
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\ndata: {\"choices\":[],\"usage\": \
         {\"prompt_tokens\" : 5,\"completion_tokens\":\n7 }}\n\ndata: [DONE]\n\n",
        Some((Some(5), 7)),
    ),
    (
        Events,
        "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n\
         event: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n",
        Some((Some(25), 15)),
    ),
    (
        Events,
        "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":3,\"input_tokens_details\":\
         {\"cached_tokens\":2},\"output_tokens\":4,\"total_tokens\":7}}}\r\n\r\n",
        Some((Some(3), 4)),
    ),
    (
        Whole,
        r#"{"content":"Hi","tokens_predicted":8,"tokens_evaluated":6}"#,
        Some((Some(6), 8)),
    ),
    // It told what it had used when it began, and was cut.
    (
        Events,
        "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\n\
         event: ping\ndata: {}\n\nevent: d\ndata: {\"a\"}\n\nevent: d\ndata: {\"b\"}\n\nevent: d\ndata: {\"c\"}\n\n",
        Some((Some(25), 4)),
    ),
    // Nothing is told: one token for each event.
    (
        Events,
        "data: {\"a\"}\n\ndata: {\"b\"}\n\n: still here\n\n\n\ndata: [DO",
        Some((None, 2)),
    ),
    // What keeps a stream open is no token.
    (
        Events,
        ": ping\n\n: ping\n\nid: 7\nretry: 5\n\n: a\ndata: {\"a\"}\n: b\n\n: ping\n\n",
        Some((None, 1)),
    ),
    (
        Lines,
        "{\"message\":{\"content\":\"a\"}}\n\n{\"message\":{\"content\":\"b\"}}\r\n{\"message\":{\"con",
        Some((None, 2)),
    ),
    (
        Lines,
        "{\"response\":\"a\"}\n{\"response\":\"b\"}\n{\"response\":\"c\"}\n\
         {\"done\":true,\"prompt_eval_count\":26,\"eval_count\":4}\n",
        Some((Some(26), 4)),
    ),
    (
        Whole,
        r#"{"data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":9,"total_tokens":9}}"#,
        Some((Some(9), 0)),
    ),
    (Whole, r#"{"content":"no figures"}"#, None),
    // What a model writes is escaped, and is not believed.
    (
        Whole,
        r#"{"content":"\"output_tokens\":99, \"prompt_tokens\": 1"}"#,
        None,
    ),
    (
        Whole,
        r#"{"output_tokens":null,"output_tokens":"5","x":"output_tokens","y":1}"#,
        None,
    ),
    (
        Whole,
        r#"{"output_tokens":184467440737095516150}"#,
        Some((None, 1 << 24)),
    ),
];

#[test]
fn each_dialect_says_what_it_used() {
    for (form, answer, used) in ANSWERS {
        assert_eq!(read(*form, &[answer.as_bytes()]), *used, "{answer}");
    }
}

#[test]
fn a_stream_uses_no_less_than_its_events_whatever_it_says_late() {
    let tokens = "data: {\"a\"}\n\n".repeat(100);
    let told = |number: u32| format!("data: {{\"output_tokens\":{number}}}\n\n");
    for (stream, used) in [
        // The number is none: its event counts as one more.
        (tokens.clone() + &told(0), 101),
        (tokens.clone() + &told(41), 101),
        (tokens.clone() + &told(0) + &tokens, 201),
        // Some events are no tokens.
        (tokens.clone() + &told(42), 42),
        (told(1) + &tokens + &told(60), 60),
        // A smaller number says nothing new: what came since the greater one counts on.
        (told(70) + &tokens + &told(60), 70 + 100),
        (told(70) + &tokens + &told(0) + &tokens, 70 + 200),
        (told(70) + &tokens + &told(70), 70),
    ] {
        assert_eq!(read(Events, &[stream.as_bytes()]), Some((None, used)), "{used}");
    }
}

#[test]
fn what_cannot_be_read_is_not_watched() {
    let watched = |kind: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Usage::of(&headers).map(|usage| usage.form)
    };
    assert_eq!(watched("application/json; charset=utf-8"), Some(Whole));
    assert_eq!(watched("Text/Event-Stream"), Some(Events));
    for lines in [
        "application/x-ndjson; charset=utf-8",
        "application/ndjson",
        "application/jsonl",
    ] {
        assert_eq!(watched(lines), Some(Lines), "{lines}");
    }
    assert_eq!(watched("audio/mpeg"), None);
    assert!(Usage::of(&HeaderMap::new()).is_none());
    let mut encoded = HeaderMap::new();
    encoded.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    encoded.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    assert!(Usage::of(&encoded).is_none());
}

/// As it is read where nothing is skipped: each byte is counted, and taken by the machine.
fn saw_each(usage: &mut Usage, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'\n' if usage.form != Whole => {
                if usage.form == Lines || usage.at_line_start {
                    usage.events += u64::from(usage.any);
                    usage.any = false;
                }
                usage.at_line_start = true;
            }
            b'\r' => {}
            _ => {
                usage.any |= usage.at_line_start && (usage.form == Lines || *byte == b'd');
                usage.at_line_start = false;
            }
        }
        usage.step(*byte);
    }
}

/// What answers are made of, and what is nearly that.
fn part() -> impl Strategy<Value = String> {
    const NAMES: &str = "prompt_tokens input_tokens tokens_evaluated prompt_eval_count completion_tokens output_tokens \
                         tokens_predicted predicted_n eval_count completion_tokens_details prompt_ eval _eval_count \
                         finish_reason Output_tokens";
    const MARKS: &str = "\"~\\~\\\"~:~: ~,~{~}~[~]~ ~\t~\r~\n~\r\n~\n\n~_~a~\u{e9}~data: ~data~event: d\n~: ping\n\n~null~0.5~-";
    let one_of = |all: &'static str, by: char| prop::sample::select(all.split(by).collect::<Vec<_>>());
    let number = prop_oneof![0..40u64, any::<u64>()].prop_map(|number| number.to_string());
    let name = one_of(NAMES, ' ');
    let colon = one_of("\":~\" : ~\"\n:\t~\"~:", '~');
    let told = (
        name.clone(),
        colon,
        prop_oneof![number.clone(), "[0-9]{1,40}".prop_map(String::from)],
    );
    prop_oneof![
        3 => told.prop_map(|(name, colon, number)| format!("\"{name}{colon}{number}")),
        2 => name.prop_map(String::from),
        8 => one_of(MARKS, '~').prop_map(String::from),
        1 => number,
        1 => "[a-z_\"]{1,30}",
        1 => Just("data: {\"choices\":[{\"delta\":{\"content\":\"a \\\"b_c\\\"\"}}]}\n\n".repeat(20)),
    ]
}

proptest! {
    #[test]
    fn what_is_skipped_tells_nothing(
        parts in prop::collection::vec(part(), 0..40),
        sizes in prop::collection::vec(1..60_usize, 1..9),
        form in prop::sample::select(&[Events, Lines, Whole][..]),
    ) {
        let answer = parts.concat();
        let (mut skips, mut each) = (Usage::new(form), Usage::new(form));
        let (mut rest, mut sizes) = (answer.as_bytes(), sizes.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
            skips.saw(piece);
            saw_each(&mut each, piece);
            prop_assert_eq!(skips.used(), each.used(), "{:?}, then {:?}", answer, after.len());
            rest = after;
        }
    }

    #[test]
    fn cuts_change_nothing(which in 0..ANSWERS.len(), cuts in prop::collection::vec(0usize..400, 0..9)) {
        let (form, answer, used) = ANSWERS[which];
        let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(answer.len())).collect();
        cuts.extend([0, answer.len()]);
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|cut| &answer.as_bytes()[cut[0]..cut[1]]).collect();
        prop_assert_eq!(read(form, &pieces), used);
    }

    #[test]
    fn any_bytes_will_do(bytes in prop::collection::vec(any::<u8>(), 0..300), form in 0..3_usize) {
        read([Events, Lines, Whole][form], &[&bytes]);
    }
}
