//! How long may each stage of one request take?
//!
//! What the config says of the model goes before what it says of the upstream, and that before what it says of all. What
//! the client asks for only shortens.

use std::time::Duration;

use tokio::time::Instant;

use super::asked::Times;
use super::options::Timeouts;
use crate::config::ModelTimeouts;
use crate::upstream::UpstreamTimeouts;

/// The word for the end of a request whose time as a whole is over. It is no fault of the upstream's.
pub(super) const WHOLE: &str = "whole_timeout";

/// The word for the end of a request whose answer did not begin in time.
pub(super) const FIRST_BYTE: &str = "first_byte_timeout";

/// What is known of one request's times before it has a place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowed {
    general: Stages,
    model: ModelTimeouts,
    asked: Times,
    /// When all of it has to be over.
    pub(super) ends: Option<Instant>,
}

/// How long its stages may take at one upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stages {
    /// From sending to the first byte.
    pub(super) first_byte: Duration,
    /// From one byte to the next.
    pub(super) idle: Duration,
    /// When all of it has to be over.
    pub(super) ends: Option<Instant>,
}

impl Allowed {
    /// For a request whose model has these times, and whose head came at `began`.
    pub(super) fn new(timeouts: &Timeouts, model: ModelTimeouts, asked: Times, began: Instant) -> Self {
        let whole = model.whole.or(timeouts.whole);
        let whole = [whole, asked.whole].into_iter().flatten().min();
        // Beyond the end of time there is none.
        let ends = whole.and_then(|whole| began.checked_add(whole));
        let general = Stages {
            first_byte: timeouts.first_byte,
            idle: timeouts.idle,
            ends,
        };
        Self {
            general,
            model,
            asked,
            ends,
        }
    }

    /// Whether the client asks for less time than others get: that it is too short for an upstream is not held against it.
    pub(super) fn is_hurried(&self) -> bool {
        self.asked.first_byte.is_some() || self.asked.idle.is_some()
    }

    /// At an upstream.
    pub(super) fn at(&self, upstream: &UpstreamTimeouts) -> Stages {
        let Self {
            general,
            model,
            asked,
            ends,
        } = self;
        let least = |of_model: Option<Duration>, of_upstream: Option<Duration>, of_all, asked: Option<_>| {
            let configured = of_model.or(of_upstream).unwrap_or(of_all);
            asked.map_or(configured, |asked| configured.min(asked))
        };
        Stages {
            first_byte: least(
                model.first_byte,
                upstream.first_byte,
                general.first_byte,
                asked.first_byte,
            ),
            idle: least(model.idle, upstream.idle, general.idle, asked.idle),
            ends: *ends,
        }
    }
}

impl Stages {
    /// How long the head of an answer may take to a request that is sent now, and the word for it when it does not come.
    pub(super) fn head(&self, now: Instant) -> (Duration, &'static str) {
        match self.ends.map(|ends| ends.saturating_duration_since(now)) {
            Some(left) if left < self.first_byte => (left, WHOLE),
            _ => (self.first_byte, FIRST_BYTE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn timeouts() -> Timeouts {
        let mut timeouts = Timeouts::default();
        (timeouts.first_byte, timeouts.idle, timeouts.whole) = (s(600), s(60), Some(s(7_200)));
        timeouts
    }

    const SMALL: ModelTimeouts = ModelTimeouts {
        first_byte: None,
        idle: None,
        whole: None,
    };

    const BIG: ModelTimeouts = ModelTimeouts {
        first_byte: Some(s(1_800)),
        idle: None,
        whole: Some(s(3_600)),
    };

    #[tokio::test(start_paused = true)]
    async fn the_model_goes_before_the_upstream_and_that_before_all() {
        let (timeouts, now) = (timeouts(), Instant::now());
        let slow = UpstreamTimeouts {
            connect: None,
            first_byte: Some(s(900)),
            idle: Some(s(90)),
        };
        let at = |model, upstream: &UpstreamTimeouts| {
            let stages = Allowed::new(&timeouts, model, Times::default(), now).at(upstream);
            (stages.first_byte, stages.idle, stages.ends.unwrap() - now)
        };
        let none = UpstreamTimeouts::default();
        assert_eq!(at(SMALL, &none), (s(600), s(60), s(7_200)));
        assert_eq!(at(SMALL, &slow), (s(900), s(90), s(7_200)));
        assert_eq!(at(BIG, &none), (s(1_800), s(60), s(3_600)));
        assert_eq!(at(BIG, &slow), (s(1_800), s(90), s(3_600)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_shortens_and_never_lengthens() {
        let (timeouts, now) = (timeouts(), Instant::now());
        let asked = |seconds| Times {
            max_wait: None,
            first_byte: Some(s(seconds)),
            idle: Some(s(seconds)),
            whole: Some(s(seconds)),
        };
        let at = |model, seconds| {
            Allowed::new(&timeouts, model, asked(seconds), now).at(&UpstreamTimeouts::default())
        };
        let short = at(BIG, 5);
        assert_eq!(
            (short.first_byte, short.idle, short.ends),
            (s(5), s(5), Some(now + s(5)))
        );
        let long = at(BIG, u64::MAX / 1_000);
        assert_eq!((long.first_byte, long.idle), (s(1_800), s(60)));
        assert_eq!(long.ends, Some(now + s(3_600)));
        let without = Allowed::new(&Timeouts::default(), SMALL, asked(u64::MAX), now);
        assert_eq!(without.ends, None, "the end of time is no limit");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_first_has_the_word() {
        let now = Instant::now();
        let stages = Stages {
            first_byte: s(600),
            idle: s(60),
            ends: Some(now + s(700)),
        };
        assert_eq!(stages.head(now), (s(600), "first_byte_timeout"));
        assert_eq!(stages.head(now + s(150)), (s(550), "whole_timeout"));
        assert_eq!(stages.head(now + s(900)), (s(0), "whole_timeout"));
    }
}
