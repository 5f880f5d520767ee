//! How does a request speak in its span, also where it is given up?

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tracing::Span;

/// A future that is asked in a span, where it stands, and dropped there once it is over or given up: what it holds may speak then.
///
/// `tracing::Instrument` does the same for a future that is moved into it: this one has some KB, and is not.
pub(super) struct InSpan<'a, F> {
    span: &'a Span,
    /// Until it is over.
    future: Pin<&'a mut Option<F>>,
}

impl<'a, F> InSpan<'a, F> {
    pub(super) fn new(span: &'a Span, future: Pin<&'a mut Option<F>>) -> Self {
        Self { span, future }
    }
}

impl<F: Future> Future for InSpan<'_, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _entered = self.span.enter();
        let Some(future) = self.future.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        let polled = future.poll(cx);
        if polled.is_ready() {
            self.future.set(None);
        }
        polled
    }
}

impl<F> Drop for InSpan<'_, F> {
    fn drop(&mut self) {
        if self.future.is_some() {
            let _entered = self.span.enter();
            self.future.set(None);
        }
    }
}
