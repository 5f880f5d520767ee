//! What is a client shown of where his request went?
//!
//! Which model answered, where it is not the one that was asked for. Which upstream, where the config says so or who may asks; and the way through the tree, for who may ask, by
//! `x-paddler-explain: 1`: a trusted peer, or whose key says `explain: true`. From all others that header is removed, and
//! nothing comes of it.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::attempt::{Answered, Failed};
use super::waiting::Place;
use crate::schedule::Explained;
use crate::upstream::UpstreamId;

pub(super) const EXPLAIN: HeaderName = HeaderName::from_static("x-paddler-explain");
/// Which model has answered, where it is not the one that the request was for.
const FALLBACK: HeaderName = HeaderName::from_static("x-paddler-fallback");
const UPSTREAM: HeaderName = HeaderName::from_static("x-paddler-upstream");

/// The longest explanation that is shown, in bytes: proxies in front have 4 KiB or 8 KiB for all headers.
const LONGEST: usize = 1024;

/// What is to be shown, and what there is by now.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Somebody who may has asked why.
    why: bool,
    /// Who answers is told.
    who: bool,
    explained: Option<String>,
    upstream: Option<UpstreamId>,
    /// The model that serves it instead of its own.
    instead: Option<Arc<str>>,
    answered: bool,
}

impl Shown {
    /// `why`: somebody who may has asked; `who`: the config says that it is told who answers.
    pub(super) fn new(why: bool, who: bool) -> Self {
        Self {
            why,
            who: who || why,
            ..Self::default()
        }
    }

    /// Whether it is wanted why the request gets its place.
    pub(super) fn wants_why(&self) -> bool {
        self.why
    }

    /// It goes there now. Of several attempts the last counts, which is the one that is answered.
    pub(super) fn placed(&mut self, place: &Place, instead: Option<&Arc<str>>) {
        self.instead = instead.cloned();
        if self.why {
            let why = place.why.as_ref();
            self.explained = why.map(|why| why.explained.summary.clone());
        }
    }

    /// Nobody was found.
    pub(super) fn unplaced(&mut self, why: Option<&Explained>) {
        if self.why {
            self.explained = why.map(|why| why.summary.clone());
        }
    }

    /// What became of an attempt.
    pub(super) fn attempted(&mut self, result: &Result<Answered, Failed>) {
        self.answered = result.is_ok();
        if let (true, Ok(answered)) = (self.who, result) {
            self.upstream = Some(answered.lease.upstream().clone());
        }
    }

    /// Tells it in the head of the answer.
    pub(super) fn say(&self, headers: &mut HeaderMap) {
        if let Some(model) = self.instead.as_ref().filter(|_| self.answered) {
            headers.insert(FALLBACK, value(model));
        }
        if let Some(id) = &self.upstream {
            headers.insert(UPSTREAM, value(id.as_str()));
        }
        if let Some(why) = &self.explained {
            headers.insert(EXPLAIN, value(why));
        }
    }
}

/// What of a text can stand in a header: names in it may be in any script.
fn value(text: &str) -> HeaderValue {
    let visible = |each: char| {
        if each == ' ' || each.is_ascii_graphic() {
            each
        } else {
            '?'
        }
    };
    let mut said: String = text.chars().take(LONGEST + 1).map(visible).collect();
    if said.len() > LONGEST {
        said.truncate(LONGEST - 3);
        said.push_str("...");
    }
    HeaderValue::try_from(said).unwrap_or(HeaderValue::from_static("?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_stand_in_a_header_and_is_short() {
        assert_eq!(
            value("require model 1 of 2 -> gpu-1"),
            "require model 1 of 2 -> gpu-1"
        );
        assert_eq!(value("模\n-> b"), "??-> b");
        let long = value(&"é".repeat(5_000));
        assert_eq!(long.len(), LONGEST);
        assert!(long.to_str().unwrap().ends_with("?..."));
        assert_eq!(value(&"x".repeat(LONGEST)), "x".repeat(LONGEST));
    }
}
