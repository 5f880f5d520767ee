//! What did a router tell, and what has changed between two looks?

use std::collections::BTreeMap;

use paddler_core::Moment;
use paddler_core::source::prometheus;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};

const ANSWERED: &str = "paddler_requests_total";
const REFUSED: &str = "paddler_refusals_total";
const HERE: &str = "paddler_in_flight_requests";

/// The families of figures that are looked at.
pub(super) const FAMILIES: [&str; 3] = [ANSWERED, REFUSED, HERE];

/// How everything was at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(super) at: Moment,
    pub(super) upstreams: Vec<Row>,
    pub(super) queue: Queue,
    /// Requests that are being handled.
    pub(super) here: f64,
    /// Requests answered since the start.
    pub(super) answered: f64,
    /// Requests refused since the start, by reason.
    pub(super) refused: BTreeMap<String, f64>,
}

/// An upstream.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Row {
    #[serde(deserialize_with = "printable")]
    pub(super) id: String,
    #[serde(deserialize_with = "printable")]
    pub(super) url: String,
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "printable")]
    pub(super) state: String,
    #[serde(default, deserialize_with = "printable")]
    pub(super) why: String,
    pub(super) draining: bool,
    pub(super) open_weight: u32,
    pub(super) limit_weight: Option<u32>,
    pub(super) running: Option<u32>,
    pub(super) waiting: Option<u32>,
    pub(super) kv_cache_usage: Option<f64>,
    pub(super) report_age_seconds: Option<f64>,
}

/// Who waits.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Queue {
    pub(super) waiting: u64,
    pub(super) max_requests: u64,
}

/// What an upstream says of itself is shown on a terminal, which does what control characters say.
fn printable<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| clean(&text))
}

pub(super) fn clean(text: &str) -> String {
    let shown = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
    text.chars().map(shown).collect()
}

impl Look {
    /// Reads what was told.
    pub(super) fn read(upstreams: &[u8], queue: &[u8], figures: &[u8], at: Moment) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct All {
            upstreams: Vec<Row>,
        }
        let All { upstreams } = json(upstreams)?;
        let mut look = Self {
            at,
            upstreams,
            queue: json(queue)?,
            here: 0.0,
            answered: 0.0,
            refused: BTreeMap::new(),
        };
        for sample in prometheus::samples(figures) {
            match sample.name {
                ANSWERED => look.answered += sample.value,
                HERE => look.here += sample.value,
                REFUSED => {
                    let reason = sample.label("reason").unwrap_or_default();
                    *look.refused.entry(clean(&reason)).or_default() += sample.value;
                }
                _ => {}
            }
        }
        Ok(look)
    }

    /// How many get work.
    pub(super) fn serving(&self) -> usize {
        let out = ["ejected", "unable", "loading", "unheard", "paused", "draining"];
        let serves = |row: &&Row| !out.contains(&row.state.as_str());
        self.upstreams.iter().filter(serves).count()
    }

    pub(super) fn refusals(&self) -> f64 {
        // Of none, a sum of floats is -0.
        self.refused.values().fold(0.0, |sum, count| sum + count)
    }

    /// The upstreams in which each word of this is found: in their ids, addresses, labels or states.
    pub(super) fn found(&self, filter: &str) -> Vec<&Row> {
        let filter = filter.to_lowercase();
        let words: Vec<_> = filter.split_whitespace().collect();
        self.upstreams.iter().filter(|row| row.has(&words)).collect()
    }

    /// How much a count grew in a second since the look before. `None`: it was just then, or there was none.
    pub(super) fn rate(&self, before: Option<&Self>, count: impl Fn(&Self) -> f64) -> Option<f64> {
        let before = before?;
        let seconds = self.at.since(before.at).as_secs_f64();
        let (now, then) = (count(self), count(before));
        // What is less than before has begun anew.
        let grown = if now < then { now } else { now - then };
        (seconds > 0.0).then(|| grown / seconds)
    }
}

impl Row {
    fn has(&self, words: &[&str]) -> bool {
        let mut text = format!("{} {} {}", self.id, self.url, self.state);
        for (name, value) in &self.labels {
            text.push_str(&format!(" {name}={value}"));
        }
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word))
    }

    /// The words of its row, in the order of [`HEADS`].
    pub(super) fn cells(&self) -> [String; HEADS.len()] {
        let or_dash = |value: Option<u32>| value.map_or("-".to_owned(), |value| value.to_string());
        let limit = self
            .limit_weight
            .map_or("-".to_owned(), |limit| limit.to_string());
        [
            self.id.clone(),
            self.state.clone(),
            format!("{}/{limit}", self.open_weight),
            or_dash(self.running),
            or_dash(self.waiting),
            self.kv_cache_usage
                .map_or("-".to_owned(), |usage| format!("{:.0}%", usage * 100.0)),
            self.report_age_seconds
                .map_or("-".to_owned(), |age| format!("{age:.1}s")),
            self.why.clone(),
        ]
    }
}

/// What stands above the cells of a row.
pub(super) const HEADS: [&str; 8] = [
    "UPSTREAM",
    "STATE",
    "OPEN/LIMIT",
    "RUNNING",
    "WAITING",
    "KV",
    "REPORT",
    "WHY",
];

/// Which of them are numbers.
pub(super) const NUMBERS: std::ops::Range<usize> = 2..7;

fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|why| why.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A look at two upstreams, after so many seconds.
    pub(in crate::top) fn look(seconds: u64, answered: u32) -> Look {
        let upstreams = br#"{"upstreams": [
            {"id": "gpu-1", "url": "http://10.0.0.1:8080", "labels": {"zone": "a"}, "state": "healthy", "draining": false, "in_flight": 2,
             "open_weight": 3, "limit_weight": 4, "running": 3, "waiting": 0, "kv_cache_usage": 0.256, "report_age_seconds": 0.31, "new": 1},
            {"id": "gpu-2", "url": "http://10.0.0.2:8080", "state": "unable", "why": "3 polls failed: \u001b[31mred", "draining": false,
             "in_flight": 0, "open_weight": 0}]}"#;
        let queue = br#"{"waiting": 1, "max_requests": 30, "bytes": 9}"#;
        let figures = format!(
            "paddler_requests_total{{class=\"chat\",status=\"200\"}} {answered}\npaddler_requests_total{{class=\"chat\",status=\"404\"}} 2\n\
             paddler_refusals_total{{reason=\"model_not_found\"}} 2\npaddler_in_flight_requests 5\n"
        );
        let at = Moment::from_nanos(seconds * 1_000_000_000);
        Look::read(upstreams, queue, figures.as_bytes(), at).unwrap()
    }

    #[test]
    fn what_is_told_is_read() {
        let look = look(0, 10);
        assert_eq!(
            (look.serving(), look.answered, look.refusals(), look.here),
            (1, 12.0, 2.0, 5.0)
        );
        assert_eq!(
            look.upstreams[0].cells(),
            ["gpu-1", "healthy", "3/4", "3", "0", "26%", "0.3s", ""]
        );
        let other = look.upstreams[1].cells();
        assert_eq!(other[..7], ["gpu-2", "unable", "0/-", "-", "-", "-", "-"]);
        assert_eq!(
            other[7], "3 polls failed: \u{fffd}[31mred",
            "no terminal obeys it"
        );
        let found = |filter| {
            look.found(filter)
                .iter()
                .map(|row| row.id.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (found(""), found("zone=A"), found("GPU unable")),
            (vec!["gpu-1", "gpu-2"], vec!["gpu-1"], vec!["gpu-2"])
        );
        assert!(
            Look::read(b"{}", b"{}", b"", look.at)
                .unwrap_err()
                .contains("upstreams")
        );
    }

    #[test]
    fn rates_come_of_two_looks() {
        let (one, two) = (look(0, 10), look(2, 30));
        assert_eq!(two.rate(Some(&one), |look| look.answered), Some(10.0));
        assert_eq!(one.rate(None, |look| look.answered), None);
        assert_eq!(
            look(4, 6).rate(Some(&two), |look| look.answered),
            Some(4.0),
            "it was started again"
        );
        assert_eq!(two.rate(Some(&two), |look| look.answered), None);
    }
}
