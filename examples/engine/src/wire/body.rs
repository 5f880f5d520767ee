//! How does an answer's body go out, and where does a fault cut it?

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::Sleep;

use super::line::Turn;
use crate::journal::{End, Note};

/// How long a connection stays up after the last byte before a cut, so that the peer can read that byte: a
/// reset may overtake data.
const PAUSE_BEFORE_CUT: Duration = Duration::from_millis(20);

/// Where a body's bytes come from.
pub(crate) trait Source: Send {
    /// The next piece; `None` at the end.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// A body that is there from the start.
impl Source for Option<Bytes> {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<Bytes>> {
        Poll::Ready(self.take())
    }
}

/// What happens at a body's limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AtLimit {
    Reset,
    Eof,
    Stall,
    /// These bytes follow, and the body ends.
    EndWith(Bytes),
}

/// How faults change a body on its way.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// After how many bytes something happens.
    pub(crate) limit: Option<(usize, AtLimit)>,
    /// Time between two bytes, where they go out one by one.
    pub(crate) drip: Option<Duration>,
    /// How many bytes go out at once, at most.
    pub(crate) piece: Option<usize>,
    /// What is added to the true `Content-Length`.
    pub(crate) length_off_by: i64,
}

/// The connection is given up: nothing, or nothing more, is answered.
#[derive(Debug)]
pub(crate) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection is cut on command")
    }
}

impl Error for Cut {}

/// A body on its way to the client.
pub(crate) struct ShapedBody {
    source: Box<dyn Source>,
    held: Bytes,
    sent: usize,
    shape: Shape,
    timer: Option<Pin<Box<Sleep>>>,
    stage: Stage,
    note: Option<Note>,
    turn: Turn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Sending,
    Cutting,
    Stalled,
    Ended,
}

impl ShapedBody {
    pub(crate) fn new(source: Box<dyn Source>, shape: Shape, note: Option<Note>, turn: Turn) -> Self {
        Self {
            source,
            held: Bytes::new(),
            sent: 0,
            shape,
            timer: None,
            stage: Stage::Sending,
            note,
            turn,
        }
    }

    /// Waits out the timer, if one is set.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(timer) = &mut self.timer {
            if timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.timer = None;
        }
        Poll::Ready(())
    }

    /// The next bytes as far as drip and limit allow.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        while self.held.is_empty() {
            match self.source.poll_next(cx) {
                Poll::Ready(Some(bytes)) => self.held = bytes,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
        let mut length = self.held.len();
        if let Some((limit, _)) = &self.shape.limit {
            length = length.min(limit.saturating_sub(self.sent));
        }
        if let Some(piece) = self.shape.piece {
            length = length.min(piece.max(1));
        }
        if let Some(every) = self.shape.drip {
            length = length.min(1);
            self.timer = Some(Box::pin(tokio::time::sleep(every)));
        }
        self.sent += length;
        Poll::Ready(Some(self.held.split_to(length)))
    }

    /// Writes down what goes out and how it ends.
    fn noted(&mut self, frame: Option<Result<Bytes, Cut>>, end: End) -> Option<Result<Frame<Bytes>, Cut>> {
        match (&frame, &mut self.note) {
            (_, None) => {}
            (Some(Ok(bytes)), Some(note)) => note.sent(bytes.len()),
            (Some(Err(Cut)), Some(note)) => note.ended(End::Cut),
            (None, Some(note)) => note.ended(end),
        }
        frame.map(|frame| frame.map(Frame::data))
    }

    /// Acts at the limit: the last bytes of the body, if there are any.
    fn reach_limit(&mut self, action: AtLimit) -> Option<Bytes> {
        match action {
            AtLimit::Stall => self.stage = Stage::Stalled,
            AtLimit::EndWith(bytes) => {
                self.stage = Stage::Ended;
                return Some(bytes);
            }
            AtLimit::Reset | AtLimit::Eof => {
                if action == AtLimit::Reset {
                    self.turn.line().reset_at_end();
                }
                self.stage = Stage::Cutting;
                self.timer = Some(Box::pin(tokio::time::sleep(PAUSE_BEFORE_CUT)));
            }
        }
        None
    }
}

impl Body for ShapedBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let body = self.get_mut();
        loop {
            if body.poll_timer(cx).is_pending() {
                return Poll::Pending;
            }
            match body.stage {
                Stage::Cutting => return Poll::Ready(body.noted(Some(Err(Cut)), End::Cut)),
                Stage::Stalled => return Poll::Pending,
                Stage::Ended => return Poll::Ready(body.noted(None, End::Failed)),
                Stage::Sending => {}
            }
            if let Some((limit, action)) = &body.shape.limit
                && body.sent >= *limit
            {
                let action = action.clone();
                if let Some(last) = body.reach_limit(action) {
                    return Poll::Ready(body.noted(Some(Ok(last)), End::Failed));
                }
                continue;
            }
            let piece = ready!(body.poll_piece(cx));
            return Poll::Ready(body.noted(piece.map(Ok), End::Whole));
        }
    }
}
