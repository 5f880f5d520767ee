//! Was a request lost, and was an answer corrupt?
//!
//! Judged by what the client noted and what the engines wrote down under the same id. The router's own counters are not
//! asked: a router that loses a request may well not know.

use std::collections::HashMap;

use paddler_engine::{Corrupt, End, Happened, JournalLine};

use super::load::{Ending, Outcome};

/// What one engine did with one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Which engine.
    pub(crate) engine: usize,
    pub(crate) faults: Vec<String>,
    pub(crate) answered: Option<u16>,
    pub(crate) end: Option<End>,
    /// The engine was killed, or started again, before the end.
    pub(crate) killed: bool,
}

impl Seen {
    fn has(&self, fault: &str) -> bool {
        self.faults.iter().any(|known| known == fault)
    }
}

/// What all engines did, by request.
#[derive(Debug, Default)]
pub(crate) struct Journals(HashMap<String, Vec<Seen>>);

impl Journals {
    /// Adds all that one engine has written down.
    pub(crate) fn add(&mut self, engine: usize, lines: &[JournalLine]) {
        let mut open: HashMap<&str, Seen> = HashMap::new();
        for line in lines {
            let id = line.id.as_str();
            match (&line.happened, open.get_mut(id)) {
                (Happened::Started, _) => self.kill(&mut open),
                (Happened::Began { faults, .. }, _) => {
                    let seen = Seen {
                        engine,
                        faults: faults.clone(),
                        ..Seen::default()
                    };
                    if let Some(before) = open.insert(id, seen) {
                        self.close(id, before);
                    }
                }
                (Happened::Answered { status }, Some(seen)) => seen.answered = Some(*status),
                (Happened::Ended { end, .. }, Some(seen)) => {
                    seen.end = Some(*end);
                    if let Some(seen) = open.remove(id) {
                        self.close(id, seen);
                    }
                }
                _ => {}
            }
        }
        self.kill(&mut open);
    }

    fn kill(&mut self, open: &mut HashMap<&str, Seen>) {
        for (id, mut seen) in open.drain() {
            seen.killed = true;
            self.close(id, seen);
        }
    }

    fn close(&mut self, id: &str, seen: Seen) {
        self.0.entry(id.to_owned()).or_default().push(seen);
    }

    pub(crate) fn of(&self, id: &str) -> &[Seen] {
        self.0.get(id).map_or(&[], Vec::as_slice)
    }
}

/// How many requests an engine has begun in all.
pub(crate) fn began(lines: &[JournalLine]) -> u64 {
    let begins = |line: &&JournalLine| matches!(line.happened, Happened::Began { .. });
    lines.iter().filter(begins).count() as u64
}

/// What one request came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All of the answer is there.
    Good,
    /// The client left.
    Left,
    /// Not whole, and the client can see that; the word says whose doing it was.
    Excused(&'static str),
    /// An able upstream was there, and the client got no answer, or one that was broken off for no reason.
    Lost(String),
    /// The answer looks whole, and is not the one that was sent.
    Corrupt(String),
}

/// Judges one request. `able` tells whether an engine was able to serve during all of it.
pub(crate) fn judge(outcome: &Outcome, seen: &[Seen], able: &Able<'_>) -> Verdict {
    match (&outcome.ending, outcome.status) {
        (Ending::Left, _) => Verdict::Left,
        (_, Some(200..=299)) => answered(outcome, seen, able),
        _ => refused(outcome, seen, able),
    }
}

/// Whether this engine, or any (`None`), was able from then to then.
pub(crate) type Able<'a> = dyn Fn(Option<usize>, &Outcome) -> bool + 'a;

fn answered(outcome: &Outcome, seen: &[Seen], able: &Able<'_>) -> Verdict {
    let altered = |seen: &Seen| seen.has("wrong-length");
    match (&outcome.ending, outcome.check) {
        (Ending::Whole, Ok(())) => Verdict::Good,
        // The engine's own doing, which nobody on the way can know of.
        (Ending::Whole, Err(_)) if seen.iter().any(altered) => {
            Verdict::Excused("the engine told a wrong length")
        }
        (Ending::Whole, Err(Corrupt::Unfinished)) if outcome.error_event => broken_off(outcome, seen, able),
        (Ending::Whole, Err(error)) => Verdict::Corrupt(format!("{}: {error}; {seen:?}", outcome.id)),
        _ => broken_off(outcome, seen, able),
    }
}

/// A stream that visibly ended before its end.
fn broken_off(outcome: &Outcome, seen: &[Seen], able: &Able<'_>) -> Verdict {
    let broke = |seen: &Seen| seen.killed || matches!(seen.end, Some(End::Cut | End::Failed));
    // It stood still, or broke off all that it had begun: what is given up then is given up with reason.
    let stood_still = |seen: &Seen| seen.end == Some(End::Cancelled) && !able(Some(seen.engine), outcome);
    if seen.iter().any(|seen| broke(seen) || stood_still(seen)) {
        Verdict::Excused("broken off by its engine, visibly")
    } else {
        Verdict::Lost(describe("broken off though its engine was whole", outcome, seen))
    }
}

fn refused(outcome: &Outcome, seen: &[Seen], able: &Able<'_>) -> Verdict {
    // Refusals without work are to be taken elsewhere, others are the engine's answer.
    let own = |seen: &Seen| seen.answered == outcome.status && !matches!(outcome.status, Some(429 | 503));
    let is_no_http = |seen: &Seen| seen.has("raw") && seen.answered.is_some();
    if !able(None, outcome) {
        Verdict::Excused("nobody was able to serve")
    } else if seen.iter().any(own) {
        Verdict::Excused("the engine's own answer")
    } else if outcome.status == Some(504) && seen.iter().any(|seen| seen.has("stall")) {
        Verdict::Excused("the engine took it and went silent")
    } else if outcome.status == Some(502) && seen.iter().any(is_no_http) {
        Verdict::Excused("the engine's answer was none of HTTP")
    } else {
        Verdict::Lost(describe("no answer", outcome, seen))
    }
}

fn describe(what: &str, outcome: &Outcome, seen: &[Seen]) -> String {
    let Outcome {
        id,
        began,
        ended,
        status,
        reason,
        bytes,
        ending,
        ..
    } = outcome;
    format!(
        "{id}: {what}: {status:?} {reason} after {bytes} bytes, {began} to {ended} ms, {ending:?}; {seen:?}"
    )
}

#[cfg(test)]
mod tests;
