//! How is the answer passed on, and when is the engine free?
//!
//! Bytes are passed on as they come. The lease rides in the body: it is complete at the last byte, and settles when the
//! client leaves before. What is cut short is seen to be cut short.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::Span;

use super::body::{Body, BoxError};
use super::headers::{begins, strip_hop_by_hop};
use super::metered::{Bill, Metered};
use super::owners::Learner;
use super::refusal::Refusal;
use super::story::Story;
use super::timeouts::{FIRST_BYTE, Stages, WHOLE};
use super::woken::Woken;
use crate::clock::{Clock, after};
use crate::health::{Fault, Verdict};
use crate::observe::{End, InFlight, Metrics};
use crate::request::Dialect;
use crate::upstream::Lease;

/// The word for an answer that its upstream ended before its end.
const BROKE_OFF: &str = "upstream_broke_off";

/// An answer on its way to the client.
#[derive(Debug)]
pub(super) struct Relay {
    body: Body,
    lease: Option<Lease>,
    /// Made when a byte is first waited for: a short answer never does.
    timer: Option<(Pin<Box<Sleep>>, Woken)>,
    /// When the next byte has to be here, while one is waited for. Time in which the client takes nothing is not waiting.
    due: Option<Instant>,
    stages: Stages,
    hurried: bool,
    sent: Instant,
    any_byte: bool,
    span: Span,
    /// How an event stream says that it was cut short; `None` for any other body, which is broken off.
    events: Option<Dialect>,
    tail: Tail,
    /// Since the server last had a reason to write out what it has.
    unwritten: bool,
    /// Why it breaks off, once that is done.
    broken: Option<BoxError>,
    done: bool,
    /// Whoever is charged by what it uses, until the end.
    metered: Option<Metered>,
    clock: Clock,
    /// What it makes is remembered.
    learner: Option<Learner>,
    story: Story,
    metrics: Arc<Metrics>,
    _in_flight: InFlight,
}

/// What a relay is told of the request it belongs to.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) lease: Lease,
    pub(super) bill: Bill,
    /// When it was sent.
    pub(super) sent: Instant,
    pub(super) stages: Stages,
    /// Its client asks for less time than others get.
    pub(super) hurried: bool,
    /// What its log lines belong to.
    pub(super) span: Span,
    pub(super) dialect: Dialect,
    pub(super) learner: Option<Learner>,
    pub(super) story: Story,
    pub(super) metrics: Arc<Metrics>,
    pub(super) in_flight: InFlight,
}

/// The last bytes of an event stream, to know whether an event is open.
#[derive(Debug, Default)]
struct Tail([u8; 4]);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        for byte in &bytes[bytes.len().saturating_sub(4)..] {
            self.0.rotate_left(1);
            self.0[3] = *byte;
        }
    }

    /// What has to come so that the next event stands by itself.
    fn closing(&self) -> &'static str {
        match self.0 {
            [0, 0, 0, 0] | [_, _, b'\n', b'\n'] | [b'\r', b'\n', b'\r', b'\n'] | [_, _, b'\r', b'\r'] => "",
            [_, _, _, b'\n'] => "\n",
            // After `\r` a first `\n` belongs to the same end of line.
            _ => "\n\n",
        }
    }
}

impl Relay {
    pub(super) fn new(body: Body, headers: &HeaderMap, request: Request) -> Self {
        let Request {
            lease,
            bill,
            sent,
            stages,
            hurried,
            span,
            dialect,
            learner,
            mut story,
            metrics,
            in_flight,
        } = request;
        let clock = bill.clock;
        let content_type = headers.get(CONTENT_TYPE);
        let is_events = content_type.is_some_and(|value| begins(value.as_bytes(), "text/event-stream"));
        // Nothing can be added to what is encoded or has its length announced.
        let plain = !headers.contains_key(CONTENT_ENCODING) && !headers.contains_key(CONTENT_LENGTH);
        story.streams(is_events);
        let mut relay = Self {
            body,
            lease: Some(lease),
            timer: None,
            due: None,
            stages,
            hurried,
            sent,
            span,
            any_byte: false,
            events: (is_events && plain).then_some(dialect),
            tail: Tail::default(),
            unwritten: true,
            broken: None,
            done: false,
            metered: Some(Metered::new(bill, headers, story.reads_usage())),
            clock,
            learner,
            story,
            metrics,
            _in_flight: in_flight,
        };
        if relay.body.is_end_stream() {
            relay.finish();
        }
        relay
    }

    /// The body for the client. Where that is taken `at_once` and here as a whole, it has come to its end already, and needs
    /// nobody who looks on.
    pub(super) fn into_body(mut self, at_once: bool) -> Body {
        // To a stream of events one may have to be added.
        let whole = match self.events {
            None if at_once => self.body.take_whole(),
            _ => None,
        };
        let Some(whole) = whole else {
            return Body::new(self);
        };
        if !whole.is_empty() {
            self.saw(&whole);
        }
        if !self.done {
            self.finish();
        }
        Body::full(whole)
    }

    /// The last byte has come: the engine is free.
    fn finish(&mut self) {
        self.done = true;
        // Before the place is free: who gets it next goes by what this one used.
        self.settle();
        self.story.end(End::Complete, None);
        if let Some(mut lease) = self.lease.take() {
            lease.first_byte();
            lease.complete();
        }
    }

    /// Whoever pays, and whoever wants to know, is told what it used.
    fn settle(&mut self) {
        if let Some(used) = self.metered.take().and_then(|metered| metered.used()) {
            self.story.used(used);
        }
    }

    fn saw(&mut self, bytes: &Bytes) {
        self.due = None;
        self.unwritten = true;
        if !self.any_byte {
            self.any_byte = true;
            self.metrics.first_byte(self.sent.elapsed());
            if let Some(lease) = &mut self.lease {
                lease.first_byte();
            }
        }
        if self.events.is_some() {
            self.tail.push(bytes);
        }
        if let Some(metered) = &mut self.metered {
            metered.saw(bytes);
        }
        if let (Some(learner), Some(lease)) = (&mut self.learner, &self.lease)
            && !learner.saw(bytes, lease.upstream())
        {
            self.learner = None;
        }
        self.story.saw(bytes.len());
    }

    /// The answer ends before its end: an event stream says so in an event, any other body is broken off.
    fn cut(&mut self, reason: &'static str, error: BoxError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.done = true;
        self.settle();
        self.story.end(End::CutShort, Some(reason));
        self.metrics.truncated(reason);
        let upstream = self
            .lease
            .as_ref()
            .map(Lease::upstream)
            .map(tracing::field::display);
        self.span
            .in_scope(|| tracing::warn!(upstream, reason, %error, "an answer was cut short"));
        if let Some(mut lease) = self.lease.take() {
            let its_fault = match reason {
                WHOLE => false,
                BROKE_OFF => true,
                _ => !self.hurried,
            };
            if its_fault {
                lease.report(Verdict::Fault(Fault::CutShort), self.clock.now());
            }
            // Dropped: the engine may still be at it.
        }
        self.body = Body::empty();
        let Some(dialect) = self.events else {
            return Poll::Ready(Some(Err(error)));
        };
        let message = format!("the upstream's answer was cut short: {error}");
        let event = Refusal::new(StatusCode::BAD_GATEWAY, reason, message).body(dialect);
        let name = if dialect == Dialect::Anthropic {
            "event: error\n"
        } else {
            ""
        };
        let text = format!("{}{name}data: {event}\n\n", self.tail.closing());
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(text)))))
    }

    /// Whether the time for all of it is over, also where bytes come without a pause.
    fn is_over(&self) -> bool {
        self.stages.ends.is_some_and(|ends| ends <= Instant::now())
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Self {
            any_byte,
            sent,
            stages,
            ..
        } = *self;
        let set = || {
            let due = if any_byte {
                after(Instant::now(), stages.idle)
            } else {
                after(sent, stages.first_byte)
            };
            stages.ends.map_or(due, |ends| due.min(ends))
        };
        let due = *self.due.get_or_insert_with(set);
        // The timer is not moved with each byte, nor asked. If it is set too early, it fires in vain once in a while and is set anew.
        let made = || (Box::pin(sleep_until(due)), Woken::new());
        let (timer, woken) = self.timer.get_or_insert_with(made);
        if timer.deadline() > due {
            timer.as_mut().reset(due);
            *woken = Woken::new();
        }
        woken.poll(cx, |cx| {
            loop {
                ready!(timer.as_mut().poll(cx));
                if timer.deadline() >= due {
                    return Poll::Ready(());
                }
                timer.as_mut().reset(due);
            }
        })
    }
}

impl Relay {
    /// What comes next of the body, or that it has not come in time.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(None) => {
                self.finish();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(bytes) = frame.data_ref() {
                    self.saw(bytes);
                }
                if let Some(trailers) = frame.trailers_mut() {
                    // Over HTTP/2 these would be an error; how long the body is, is known by now (RFC 9110, 6.5.1).
                    strip_hop_by_hop(trailers, &[]);
                    trailers.remove(CONTENT_LENGTH);
                }
                if self.body.is_end_stream() {
                    self.finish();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            // A server lets go of what it has not written when a body fails: the bytes before that are for the client.
            Poll::Ready(Some(Err(error))) if self.events.is_none() && self.unwritten => {
                self.unwritten = false;
                self.broken = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(Some(Err(error))) => self.cut(BROKE_OFF, error),
            Poll::Pending => {
                self.unwritten = false;
                ready!(self.poll_timer(cx));
                self.cut_late()
            }
        }
    }

    /// A time limit is over: that of the whole, or of silence.
    fn cut_late(&mut self) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_over() {
            return self.cut(WHOLE, "the time for the whole of it was over".into());
        }
        let what = if self.any_byte {
            "upstream_idle"
        } else {
            FIRST_BYTE
        };
        self.cut(what, "no byte came in time".into())
    }
}

impl HttpBody for Relay {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if this.done {
            return Poll::Ready(None);
        }
        if this.is_over() {
            return this.cut_late();
        }
        if let Some(error) = this.broken.take() {
            return this.cut(BROKE_OFF, error);
        }
        this.poll_body(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.done
    }

    fn size_hint(&self) -> SizeHint {
        // An event may be added, so the length of an event stream is never known.
        if self.events.is_some() && !self.done {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.settle();
        if !self.done {
            self.metrics.cancelled();
        }
    }
}

#[cfg(test)]
mod tests;
