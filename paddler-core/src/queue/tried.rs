//! Where has a request been already, and when may it go there again?

use std::time::Duration;

use crate::Moment;
use crate::upstream::UpstreamId;

/// How long an upstream that could not take a request is left out for it at first: it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// And at most: an engine that has loaded its model is found out within this.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Upstreams that could not take a request, each left out for a while and not for ever: whoever waits long enough may
/// find that the one he came from is the one that can serve him.
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::queue::Tried;
/// use paddler_core::upstream::UpstreamId;
///
/// let mut tried = Tried::default();
/// tried.add(UpstreamId::new("loading")?, Moment::ZERO, None);
/// assert_eq!(tried.left_out(Moment::from_millis(249)).len(), 1);
/// assert!(tried.left_out(Moment::from_millis(250)).is_empty());
/// # Ok::<(), paddler_core::upstream::InvalidId>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tried(
    /// By name: a host may leave out most of a large pool.
    Vec<Try>,
);

#[derive(Debug, Clone)]
struct Try {
    upstream: UpstreamId,
    times: u32,
    until: Moment,
}

impl Tried {
    /// This upstream could not take the request. It is left out for a pause that doubles from a quarter of a second to a
    /// second, or for as long as it asked for itself.
    pub fn add(&mut self, upstream: UpstreamId, now: Moment, asked_for: Option<Duration>) {
        let place = self.place(&upstream).unwrap_or_else(|place| {
            let (times, until) = (0, now);
            self.0.insert(
                place,
                Try {
                    upstream,
                    times,
                    until,
                },
            );
            place
        });
        let one = &mut self.0[place];
        let pause = FIRST_PAUSE
            .saturating_mul(1 << one.times.min(8))
            .min(LONGEST_PAUSE);
        one.times += 1;
        one.until = now.saturating_add(asked_for.map_or(pause, |asked| asked.max(pause)));
    }

    /// Where this one is, or would be.
    fn place(&self, upstream: &UpstreamId) -> Result<usize, usize> {
        self.0.binary_search_by(|one| one.upstream.cmp(upstream))
    }

    /// Whether it has been nowhere.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are left out now.
    pub fn left_out(&self, now: Moment) -> Vec<UpstreamId> {
        self.0
            .iter()
            .filter(|one| now < one.until)
            .map(|one| one.upstream.clone())
            .collect()
    }

    /// Until when this one is left out, if it is so now.
    pub fn until(&self, upstream: &UpstreamId, now: Moment) -> Option<Moment> {
        let known = &self.0[self.place(upstream).ok()?];
        Some(known.until).filter(|until| now < *until)
    }

    /// When the first of them may be asked again.
    pub fn next_end(&self, now: Moment) -> Option<Moment> {
        self.0
            .iter()
            .map(|one| one.until)
            .filter(|until| now < *until)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_what_was_asked_for_is_honoured() {
        let id = |text: &str| UpstreamId::new(text).unwrap();
        let mut tried = Tried::default();
        let mut now = Moment::ZERO;
        for pause in [250, 500, 1_000, 1_000] {
            tried.add(id("a"), now, None);
            let end = now.saturating_add(Duration::from_millis(pause));
            assert_eq!(tried.next_end(now), Some(end));
            now = end;
        }
        assert_eq!(tried.next_end(now), None);
        tried.add(id("c"), now, Some(Duration::ZERO));
        tried.add(id("b"), now, Some(Duration::from_secs(7)));
        assert_eq!(tried.left_out(now), [id("b"), id("c")]);
        assert_eq!(
            tried.until(&id("b"), now),
            Some(now.saturating_add(Duration::from_secs(7)))
        );
        assert_eq!(tried.until(&id("a"), now), None, "it may go there again");
        assert_eq!(tried.until(&id("z"), now), None, "it was never there");
        assert_eq!(
            tried.left_out(now.saturating_add(Duration::from_secs(6))),
            [id("b")]
        );
        tried.add(id("d"), now, Some(Duration::MAX));
        assert_eq!(tried.left_out(Moment::from_nanos(u64::MAX - 1)), [id("d")]);
    }
}
