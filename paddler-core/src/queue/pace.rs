//! How fast does the queue move?

use std::time::Duration;

use crate::Moment;

/// What was seen this long ago counts for a third. Long enough to see some answers of half a minute end, short enough to
/// notice within a minute that an engine has come or gone.
const MEMORY: f64 = 30.0;

/// Over a shorter time than this no rate is told.
const LEAST_SEEN: f64 = 1.0;

/// The least and the most that anybody is told to wait: less is hammering, and after half a minute all may be different.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Places handed out to those who had to wait, per second, forgetting what is long past. Time in which nobody waits does
/// not count: it says nothing about how fast places come.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Places, the older the less.
    places: f64,
    /// Seconds in which somebody waited, the older the less.
    seconds: f64,
    /// Up to when that is so, while somebody waits.
    counted: Option<Moment>,
}

impl Pace {
    fn forget(&mut self, now: Moment) {
        if let Some(before) = self.counted.replace(now) {
            let passed = now.since(before).as_secs_f64();
            let left = (-passed / MEMORY).exp();
            self.places *= left;
            // So that an even stream of places, whatever its length, comes out as its rate.
            self.seconds = self.seconds * left + MEMORY * (1.0 - left);
        }
    }

    /// Somebody waits from now on.
    pub(super) fn busy(&mut self, now: Moment) {
        self.counted.get_or_insert(now);
    }

    /// Nobody waits any more.
    pub(super) fn idle(&mut self, now: Moment) {
        self.forget(now);
        self.counted = None;
    }

    /// A place was handed to somebody who had waited.
    pub(super) fn handed(&mut self, now: Moment) {
        self.forget(now);
        self.places += 1.0;
    }

    /// How long it takes until `ahead` places are handed out. `None`: too little was seen.
    pub(super) fn wait_for(&self, ahead: usize, now: Moment) -> Option<Duration> {
        let mut seen = Self { ..*self };
        if seen.counted.is_some() {
            seen.forget(now);
        }
        let (least, most) = WAITS;
        if seen.seconds < LEAST_SEEN {
            return None;
        }
        // Less than half a place is the echo of times that are over: too little is known, or it is a standstill.
        if seen.places < 0.5 {
            return (seen.seconds > MEMORY / 2.0).then_some(most);
        }
        let seconds = ahead as f64 * seen.seconds / seen.places;
        Some(Duration::from_secs_f64(seconds.min(most.as_secs_f64())).max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    fn seconds(pace: &Pace, ahead: usize, now: u64) -> Option<u64> {
        pace.wait_for(ahead, at(now))
            .map(|wait| (wait.as_secs_f64() * 10.0).round() as u64)
    }

    #[test]
    fn an_even_stream_comes_out_as_its_rate_within_the_clamps() {
        let mut pace = Pace::default();
        pace.busy(at(0));
        assert_eq!(seconds(&pace, 1, 0), None, "nothing was seen");
        for second in 1..=100 {
            pace.handed(at(second * 500));
            if second == 1 {
                assert_eq!(seconds(&pace, 9, 500), None, "too little");
            }
        }
        // Two a second.
        assert_eq!(seconds(&pace, 10, 50_000), Some(50));
        assert_eq!(seconds(&pace, 1, 50_000), Some(10), "never less than a second");
        assert_eq!(seconds(&pace, 1_000, 50_000), Some(300), "never more than thirty");
    }

    #[test]
    fn time_in_which_nobody_waits_does_not_count_and_a_standstill_does() {
        let mut pace = Pace::default();
        pace.busy(at(0));
        for second in 1..=20 {
            pace.handed(at(second * 1_000));
        }
        let before = seconds(&pace, 5, 20_000);
        assert_eq!(before, Some(49));
        pace.idle(at(20_000));
        assert_eq!(seconds(&pace, 5, 900_000), before, "a pause changes nothing");
        pace.busy(at(900_000));
        assert_eq!(seconds(&pace, 5, 900_000), before);
        let later = seconds(&pace, 5, 930_000);
        assert!(later > Some(100), "half a minute without a place: {later:?}");
        assert_eq!(seconds(&pace, 1, 1_200_000), Some(300), "a standstill");
    }
}
