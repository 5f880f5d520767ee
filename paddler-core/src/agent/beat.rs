//! For how long may an agent say nothing?

use std::time::Duration;

use tokio::time::Instant;

/// Beats without a word after which an agent is stale. After as many again it has left.
const MISSED: u32 = 3;

/// How long an agent is waited for of which it is not known how often it speaks: three times what agents of Paddler 1.x have
/// unless told otherwise.
const UNKNOWN: Duration = Duration::from_secs(30);

/// No beat is shorter or longer than that, whatever is said or seen.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(120);

/// How often an agent speaks.
#[derive(Debug, Clone)]
pub(super) enum Beat {
    /// It has said so.
    Said(Duration),
    /// It has not: the last pauses between two words, the oldest first.
    Seen(Vec<Duration>),
}

impl Beat {
    /// As an agent says that it is.
    pub(super) fn said(beat: Duration) -> Self {
        Self::Said(beat.clamp(SHORTEST, LONGEST))
    }

    /// Of one who does not say it.
    pub(super) fn unknown() -> Self {
        Self::Seen(Vec::new())
    }

    /// It has spoken, so long after it spoke before.
    pub(super) fn seen(&mut self, pause: Duration) {
        if let Self::Seen(pauses) = self {
            if pauses.len() == MISSED as usize {
                pauses.remove(0);
            }
            pauses.push(pause.clamp(SHORTEST, LONGEST));
        }
    }

    /// The longest that is usual, where it is known.
    pub(super) fn usual(&self) -> Option<Duration> {
        match self {
            Self::Said(beat) => Some(*beat),
            // Two words that come together are no rhythm.
            Self::Seen(pauses) if pauses.len() < 2 => None,
            Self::Seen(pauses) => pauses.iter().max().copied(),
        }
    }

    /// How long it may say nothing before it is stale, and how long before it has left.
    pub(super) fn patience(&self) -> (Duration, Duration) {
        let stale = self.usual().map_or(UNKNOWN, |beat| beat * MISSED);
        (stale, stale * 2)
    }

    /// When it is stale that spoke last at this time, and when it has left.
    pub(super) fn deadlines(&self, heard: Instant) -> (Instant, Instant) {
        let (stale, left) = self.patience();
        (heard + stale, heard + left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_is_learnt_from_what_is_seen() {
        let seconds = |beat: &Beat| beat.patience().0.as_secs();
        let mut beat = Beat::unknown();
        assert_eq!(seconds(&beat), 30);
        beat.seen(Duration::ZERO);
        assert_eq!(seconds(&beat), 30, "one pause is none yet");
        for pause in [10, 11, 10] {
            beat.seen(Duration::from_secs(pause));
        }
        assert_eq!(
            beat.patience(),
            (Duration::from_secs(33), Duration::from_secs(66))
        );
        for _ in 0..3 {
            beat.seen(Duration::from_millis(500));
        }
        assert_eq!(beat.patience().0, Duration::from_millis(1500));
        beat.seen(Duration::MAX);
        assert_eq!(seconds(&beat), 360, "and none is endless");
        let mut said = Beat::said(Duration::from_secs(1));
        said.seen(Duration::from_secs(9));
        assert_eq!(seconds(&said), 3);
    }
}
