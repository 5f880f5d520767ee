//! How is it told what becomes of a request?
//!
//! A story goes with the request, from its arrival into the body of its answer. Wherever that ends, the story is told: dropped
//! before anybody said how it ended, its client has left.

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method};

use super::accept::Peer;
use super::attempt::{Answered, Failed};
use super::trace::{self, KNOWN, Parent, SAMPLED};
use super::waiting::Place;
use crate::Moment;
use crate::clock::Clock;
use crate::observe::{End, Measured, PassedOver, Telemetry, TraceSpan, Trail, TrailAttempt, guarded};
use crate::queue::Used;
use crate::request::{RequestFacts, Route};
use crate::schedule::{Detail, Explained};
use crate::upstream::UpstreamId;

/// The longest `tracestate` that is told, in bytes.
const LONGEST_STATE: usize = 512;

/// The trail of a request, if somebody wants it, and what is measured of it in any case.
#[derive(Debug, Default)]
pub(super) struct Story {
    open: Option<Box<Open>>,
    /// Who is told of it only if it wants to know why this one gets its place.
    perhaps: Option<Arc<dyn Telemetry>>,
    measured: Option<Measured>,
}

#[derive(Debug)]
struct Open {
    to: Arc<dyn Telemetry>,
    clock: Clock,
    trail: Trail,
    /// What its trace is marked with.
    flags: u8,
}

impl Story {
    pub(super) fn begin(
        to: Option<&Arc<dyn Telemetry>>,
        clock: Clock,
        id: &str,
        method: &Method,
        peer: Option<&Peer>,
    ) -> Self {
        let every = to.is_some_and(|to| guarded(|| to.every()) == Some(true));
        let open = |to: &Arc<dyn Telemetry>| {
            Box::new(Open {
                to: to.clone(),
                clock,
                trail: Trail {
                    address: peer.map(|peer| peer.0.ip().to_canonical()),
                    ..Trail::begun(id, method.as_str(), "", clock.now())
                },
                flags: 0,
            })
        };
        Self {
            open: to.filter(|_| every).map(open),
            perhaps: to.filter(|_| !every).cloned(),
            measured: None,
        }
    }

    fn tell(&mut self, change: impl FnOnce(&mut Trail, Moment)) {
        if let Some(open) = &mut self.open {
            change(&mut open.trail, open.clock.now());
        }
    }

    /// What its head says.
    pub(super) fn asks(&mut self, path: &str, route: &Route) {
        self.tell(|trail, _| trail.asks(path, route));
    }

    /// Who asks.
    pub(super) fn client(&mut self, name: &Arc<str>) {
        self.tell(|trail, _| trail.client = Some(name.clone()));
    }

    /// Makes it a span of its trace, or of a new one, if somebody wants that: whoever gets it next belongs to that.
    pub(super) fn trace(&mut self, headers: &mut HeaderMap, mut draw: impl FnMut() -> u64) {
        let Some(open) = &mut self.open else {
            return;
        };
        let parent = trace::parent(headers);
        let trace_id = parent.map_or_else(
            || (u128::from(draw()) << 64) | u128::from(draw() | 1),
            |parent| parent.trace_id,
        );
        let sampled = parent.map(|parent| parent.flags & SAMPLED != 0);
        if guarded(|| open.to.traces(sampled, trace_id)) != Some(true) {
            return;
        }
        let span = Parent {
            trace_id,
            span_id: draw() | 1,
            flags: parent.map_or(0, |parent| parent.flags & KNOWN) | SAMPLED,
        };
        let state = parent.and_then(|_| headers.get("tracestate")?.to_str().ok());
        // Nobody has to pass on more of it (W3C Trace Context, 3.3.1.5).
        let state = state.filter(|state| state.len() <= LONGEST_STATE);
        open.trail.span = Some(TraceSpan {
            trace_id,
            span_id: span.span_id,
            parent_id: parent.map(|parent| parent.span_id),
            state: state.map(Into::into),
        });
        if parent.is_none() {
            headers.remove("tracestate");
        }
        open.flags = span.flags;
        trace::set_parent(headers, trace::traceparent(span));
    }

    /// What upstreams are told of its trace.
    pub(super) fn traced(&mut self, headers: &HeaderMap) {
        self.tell(|trail, _| {
            let value = headers.get("traceparent").and_then(|value| value.to_str().ok());
            trail.traceparent = value.map(Into::into);
        });
    }

    /// How much of why it gets its place is to be kept. `begun`: what is known of it by now.
    pub(super) fn detail(
        &mut self,
        facts: &RequestFacts,
        clock: Clock,
        begun: impl FnOnce() -> Trail,
    ) -> Detail {
        let perhaps = self.perhaps.take();
        let to = self.open.as_ref().map(|open| &open.to).or(perhaps.as_ref());
        let asked = to.and_then(|to| guarded(|| to.detail(facts)));
        let detail = asked.unwrap_or_default();
        if let Some(to) = perhaps.filter(|_| detail != Detail::Nothing) {
            self.open = Some(Box::new(Open {
                to,
                clock,
                trail: begun(),
                flags: 0,
            }));
        }
        detail
    }

    /// Whether its answer is to be read for the tokens it uses.
    pub(super) fn reads_usage(&self) -> bool {
        let asked = self
            .open
            .as_ref()
            .and_then(|open| guarded(|| open.to.reads_usage()));
        asked.unwrap_or_default()
    }

    /// It counts for the model that it asks for.
    pub(super) fn measure(&mut self, measured: Measured) {
        self.measured = Some(measured);
    }

    fn count(&mut self, change: impl FnOnce(&mut Measured)) {
        if let Some(measured) = &mut self.measured {
            change(measured);
        }
    }

    /// It looks for a place. `detail`: what was said to be kept of why, which a client may have asked for more of.
    pub(super) fn began(&mut self, facts: &RequestFacts, detail: Detail) {
        self.tell(|trail, now| {
            let mut facts = facts.clone();
            facts.detail = detail;
            (trail.facts, trail.began) = (Some(facts), Some(now));
        });
        if let Some(open) = &self.open {
            guarded(|| open.to.began(&open.trail));
        }
    }

    /// It has a place. Gives what the upstream is told of its trace, if that is not what all are told.
    pub(super) fn placed(
        &mut self,
        place: &mut Place,
        (instead, passed_over): (Option<Arc<str>>, impl FnOnce() -> Vec<PassedOver>),
        draw: impl FnOnce() -> u64,
    ) -> Option<HeaderValue> {
        // It is there for the log, too.
        let why = place.why.take();
        let open = self.open.as_ref();
        let attempt = open.and_then(|open| {
            let span = open.trail.span.as_ref()?;
            Some(Parent {
                trace_id: span.trace_id,
                span_id: draw() | 1,
                flags: open.flags,
            })
        });
        self.tell(|trail, at| {
            let wanted = trail.facts.as_ref().map(|facts| facts.detail);
            let why = why.filter(|_| wanted.is_some_and(|detail| detail != Detail::Nothing));
            trail.attempts.push(TrailAttempt {
                upstream: place.lease.upstream().clone(),
                model: instead,
                passed_over: passed_over(),
                at,
                span_id: attempt.map(|attempt| attempt.span_id),
                why,
                ended: None,
                ended_at: None,
            });
        });
        if let Some(open) = &self.open {
            guarded(|| open.to.placed(&open.trail));
        }
        attempt.map(trace::traceparent)
    }

    /// Nobody was found.
    pub(super) fn unplaced(&mut self, why: Option<Explained>) {
        self.tell(|trail, _| trail.unplaced = why.map(Box::new));
    }

    /// What became of the last attempt.
    pub(super) fn attempted(&mut self, result: &Result<Answered, Failed>) {
        self.tell(|trail, now| {
            let Some(sent) = trail.attempts.last_mut() else {
                return;
            };
            sent.ended_at = Some(now);
            sent.ended = Some(match result {
                Ok(_) => "answered",
                Err(Failed::NotSent { .. }) => "not_sent",
                Err(Failed::Lost { .. }) => "lost",
                Err(Failed::Refused { .. } | Failed::Key { .. }) => "refused",
                Err(Failed::Broken { .. }) => "broken",
                Err(Failed::Late { .. }) => "late",
            });
            if let Ok(answered) = result {
                trail.answered = Some(now);
                served_by(sent, answered.lease.upstream());
            }
        });
    }

    /// It is answered with this status, and this error of ours, if it is one.
    pub(super) fn status(&mut self, status: u16, refused: Option<Cow<'static, str>>) {
        self.count(|measured| measured.status(status));
        self.tell(|trail, now| {
            trail.status = Some(status);
            trail.answered.get_or_insert(now);
            if refused.is_some() {
                trail.reason = refused;
            }
        });
    }

    /// Whether the answer that comes is a stream of events.
    pub(super) fn streams(&mut self, events: bool) {
        self.count(|measured| measured.streams(events));
        self.tell(|trail, _| trail.events = events);
    }

    /// A piece of the answer passes.
    pub(super) fn saw(&mut self, bytes: usize) {
        self.count(Measured::saw);
        if let Some(open) = &mut self.open {
            let trail = &mut open.trail;
            trail.pieces += 1;
            trail.answer_bytes += bytes as u64;
            if trail.first_byte.is_none() {
                trail.first_byte = Some(open.clock.now());
            }
        }
    }

    /// What the answer says that it used.
    pub(super) fn used(&mut self, used: Used) {
        if let Used::Tokens { prompt, output } = used {
            self.count(|measured| measured.used(prompt, output));
            self.tell(|trail, _| (trail.prompt_tokens, trail.output_tokens) = (prompt, Some(output)));
        }
    }

    /// It has come to this end.
    pub(super) fn end(&mut self, end: End, reason: Option<&'static str>) {
        self.tell(|trail, _| {
            trail.end = Some(end);
            if let Some(reason) = reason {
                trail.reason = Some(reason.into());
            }
        });
        if let Some(measured) = self.measured.take() {
            measured.end(end);
        }
        self.open = None;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.trail.ended = Some(self.clock.now());
        self.trail.end.get_or_insert(End::Left);
        guarded(|| self.to.ended(&self.trail));
    }
}

/// The transport may have sent it elsewhere than it was told.
fn served_by(sent: &mut TrailAttempt, upstream: &UpstreamId) {
    if sent.upstream != *upstream {
        sent.upstream.clone_from(upstream);
    }
}
