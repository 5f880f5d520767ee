//! Which of thousands of upstreams does somebody want to see, and how are all of them together?

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::Serialize;

use super::leases::UpstreamLeases;
use crate::Moment;
use crate::observe::UpstreamStatus;
use crate::status::{Entry, Snapshot};
use crate::upstream::{Models, UpstreamIndex};

/// Every [`UpstreamStatus::state`], the one that most needs somebody first.
pub const STATES: [&str; 10] = [
    "ejected", "unable", "loading", "unheard", "paused", "degraded", "probing", "warming", "draining",
    "healthy",
];

/// By what upstreams are sorted; equals stay in the order of their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UpstreamSort {
    /// By their ids.
    #[default]
    Id,
    /// Whoever most needs somebody first: [`STATES`].
    State,
    /// The fullest first: open weight as a share of the limit. Those without a limit come last.
    Load,
    /// Whoever reports most running requests first.
    Running,
    /// Whoever reports most waiting requests first.
    Waiting,
    /// The fullest KV cache first.
    KvCache,
    /// The oldest report first, and before it those that have not told anything.
    ReportAge,
}

impl UpstreamSort {
    /// All of them, each with its word.
    pub const ALL: [(&'static str, Self); 7] = [
        ("id", Self::Id),
        ("state", Self::State),
        ("load", Self::Load),
        ("running", Self::Running),
        ("waiting", Self::Waiting),
        ("kv_cache", Self::KvCache),
        ("report_age", Self::ReportAge),
    ];

    /// Who has less comes first.
    fn key(self, one: &UpstreamStatus) -> f64 {
        // What is not known comes after all that is.
        let most = |known: Option<f64>| known.map_or(1.0, |known| -known);
        match self {
            Self::Id => 0.0,
            Self::State => {
                let place = STATES.iter().position(|state| *state == one.state);
                place.unwrap_or(STATES.len()) as f64
            }
            Self::Load => {
                let open = f64::from(one.open_weight);
                match one.limit_weight {
                    Some(limit) if limit > 0 => -open / f64::from(limit),
                    _ => -open / 1e12,
                }
            }
            Self::Running => most(one.running.map(f64::from)),
            Self::Waiting => most(one.waiting.map(f64::from)),
            Self::KvCache => most(one.kv_cache_usage),
            Self::ReportAge => one.report_age.map_or(f64::NEG_INFINITY, |age| -age.as_secs_f64()),
        }
    }
}

/// Which upstreams somebody wants to see. By default all, in the order of their ids, and no details.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct UpstreamQuery {
    /// Words with spaces between, each of which is a part of an id, a URL, a label (`zone=a`) or of the name of a model or
    /// adapter that is served there. Case does not matter.
    pub find: String,
    /// Those in this state alone, one of [`STATES`].
    pub state: Option<String>,
    /// In this order.
    pub sort: UpstreamSort,
    /// So many are left out before the first.
    pub offset: usize,
    /// So many at most.
    pub limit: Option<usize>,
    /// With [`UpstreamDetails`].
    pub details: bool,
}

/// The upstreams that somebody wants to see, and what all come to.
///
/// ```
/// use paddler_core::Moment;
/// use paddler_core::manage::{UpstreamPage, UpstreamQuery};
/// use paddler_core::schedule::trees;
/// use paddler_core::status::{StatusBoard, StatusEvent};
/// use paddler_core::upstream::UpstreamSpec;
///
/// let mut board = StatusBoard::new(trees::gateway());
/// for n in 0..100 {
///     let spec = UpstreamSpec::new(format!("gpu-{n:02}"), format!("http://10.0.0.{n}:8080"))?;
///     board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
/// }
/// let mut query = UpstreamQuery::default();
/// (query.find, query.offset, query.limit) = ("GPU-1".to_owned(), 5, Some(3));
/// let page = UpstreamPage::of(&board.publish(Moment::ZERO), &query, Moment::ZERO);
/// assert_eq!((page.found, page.totals.upstreams), (10, 100));
/// assert_eq!(page.upstreams[0].status.id, "gpu-15");
/// assert_eq!(page.upstreams.len(), 3);
/// # Ok::<(), paddler_core::upstream::InvalidId>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UpstreamPage {
    /// Those that are told of.
    pub upstreams: Vec<UpstreamRow>,
    /// How many there are like that, also where fewer are told of.
    pub found: usize,
    /// What all come to, whoever is looked for.
    pub totals: UpstreamTotals,
}

/// What all upstreams come to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct UpstreamTotals {
    /// How many there are.
    pub upstreams: usize,
    /// How many are sent work now.
    pub serving: usize,
    /// The weight of our own requests there, with what settles.
    pub open_weight: u64,
    /// The most weight that may be open there. Left out where somebody has no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_weight: Option<u64>,
}

/// One upstream.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UpstreamRow {
    /// How it is.
    #[serde(flatten)]
    pub status: UpstreamStatus,
    /// The same in detail, where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<UpstreamDetails>,
}

/// What an upstream serves, and what is open there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UpstreamDetails {
    /// It serves whatever is asked of it.
    pub serves_any: bool,
    /// Models that it lists, in their order.
    pub models: Vec<String>,
    /// Adapters that it lists, in their order.
    pub adapters: Vec<ListedAdapter>,
    /// What is open there, by our own count.
    pub leases: UpstreamLeases,
}

/// An adapter that an upstream lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedAdapter {
    /// Its name.
    pub name: String,
    /// It is reported as running or waiting there.
    pub active: bool,
}

impl UpstreamPage {
    /// What is wanted of the upstreams of a snapshot. It goes through all of them.
    pub fn of(snapshot: &Snapshot, query: &UpstreamQuery, now: Moment) -> Self {
        let find = query.find.to_lowercase();
        let words: Vec<_> = find.split_whitespace().collect();
        let mut totals = UpstreamTotals {
            limit_weight: Some(0),
            ..UpstreamTotals::default()
        };
        // Of each no more than its place, until it is known who is told of.
        let mut found = Vec::new();
        for (at, entry) in snapshot.iter() {
            let one = UpstreamStatus::unnamed(snapshot, at, entry, now);
            totals.add(&one);
            let of_state = query.state.as_ref().is_none_or(|state| one.state == state);
            if of_state && (words.is_empty() || is_meant(entry, &words)) {
                found.push((query.sort.key(&one), at, entry));
            }
        }
        found.sort_unstable_by(|(key, _, one), (other_key, _, other)| {
            let by_id = || one.spec().id.cmp(&other.spec().id);
            key.total_cmp(other_key).then_with(by_id)
        });
        let settling = query.details.then(|| snapshot.ledger().settling_by_place());
        let row = |&(_, at, entry): &(f64, UpstreamIndex, &Arc<Entry>)| UpstreamRow {
            status: UpstreamStatus::of(snapshot, at, entry, now),
            details: settling.as_ref().map(|settling| {
                let leases = UpstreamLeases::of(snapshot, (at, entry), settling);
                UpstreamDetails::of(snapshot, (at, entry), leases)
            }),
        };
        let wanted = found.iter().skip(query.offset);
        Self {
            upstreams: wanted.take(query.limit.unwrap_or(usize::MAX)).map(row).collect(),
            found: found.len(),
            totals,
        }
    }
}

impl UpstreamTotals {
    fn add(&mut self, one: &UpstreamStatus) {
        let out = ["ejected", "unable", "loading", "draining", "paused", "unheard"];
        self.upstreams += 1;
        self.serving += usize::from(!out.contains(&one.state));
        self.open_weight += u64::from(one.open_weight);
        let limits = self.limit_weight.zip(one.limit_weight);
        self.limit_weight = limits.map(|(sum, limit)| sum + u64::from(limit));
    }
}

/// Whether each of these words, in small letters, is a part of what an upstream is called, or of what it serves.
fn is_meant(entry: &Entry, words: &[&str]) -> bool {
    let spec = entry.spec();
    let mut text = format!("{} {}", spec.id, spec.url);
    let mut add = |more: &str| {
        text.push(' ');
        text.push_str(more);
    };
    for (name, value) in &spec.labels {
        add(&format!("{name}={value}"));
    }
    names(entry).for_each(add);
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word))
}

/// The names of the models and adapters that it lists.
fn names(entry: &Entry) -> impl Iterator<Item = &str> {
    let listed = match entry.models() {
        Some(Models::Listed(models)) => &models[..],
        _ => &[],
    };
    let each = listed
        .iter()
        .flat_map(|model| model.aliases.iter().chain([&model.id]));
    each.map(|name| &**name)
}

impl UpstreamDetails {
    fn of(snapshot: &Snapshot, (at, entry): (UpstreamIndex, &Entry), leases: UpstreamLeases) -> Self {
        let mut details = Self {
            serves_any: entry.models() == Some(&Models::Any),
            models: Vec::new(),
            adapters: Vec::new(),
            leases,
        };
        // In their order, and each once.
        let names: BTreeSet<_> = names(entry).collect();
        for (name, row) in names
            .into_iter()
            .filter_map(|name| Some((name, snapshot.model(name)?)))
        {
            let name = name.to_owned();
            if row.is_adapter() {
                let active = row.is_active_on(at);
                details.adapters.push(ListedAdapter { name, active });
            } else {
                details.models.push(name);
            }
        }
        details
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::schedule::trees;
    use crate::status::{Adapters, Report, StatusBoard, StatusEvent};
    use crate::upstream::{ModelEntry, UpstreamSpec};

    /// Of three upstreams, `c` has told nothing.
    fn snapshot() -> std::sync::Arc<Snapshot> {
        let mut board = StatusBoard::new(trees::gateway());
        for (id, zone, model, waiting) in [
            ("b", "west", "Llama", 7),
            ("a", "east", "qwen", 1),
            ("c", "east", "", 0),
        ] {
            let mut spec = UpstreamSpec::new(id, format!("http://{id}.example:8080")).unwrap();
            spec.labels.insert("zone".to_owned(), zone.to_owned());
            let id = spec.id.clone();
            board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
            if model.is_empty() {
                continue;
            }
            let mut report = Report::new();
            (report.waiting, report.slots_total, report.slots_busy) = (Some(waiting), Some(4), Some(0));
            let adapter = ModelEntry::adapter("sql", model);
            report.models = Some(Models::Listed(vec![ModelEntry::new(model), adapter]));
            report.adapters = Some(Adapters {
                max: None,
                running: vec!["sql".into()],
                waiting: Vec::new(),
            });
            let sample = None;
            board.apply(StatusEvent::Report { id, report, sample }, Moment::ZERO);
        }
        board.set_draining("b", true);
        board.publish(Moment::ZERO)
    }

    fn ids(change: impl FnOnce(&mut UpstreamQuery)) -> Vec<String> {
        let mut query = UpstreamQuery::default();
        change(&mut query);
        let now = Moment::ZERO.saturating_add(Duration::from_secs(1));
        let page = UpstreamPage::of(&snapshot(), &query, now);
        page.upstreams.into_iter().map(|row| row.status.id).collect()
    }

    #[test]
    fn they_are_found_by_all_that_they_are_called_and_serve() {
        for (find, found) in [
            ("", &["a", "b", "c"][..]),
            ("ZONE=east", &["a", "c"]),
            ("zone=east  example", &["a", "c"]),
            ("llama", &["b"]),
            ("sql zone=west", &["b"]),
            ("c.example", &["c"]),
            ("llama east", &[]),
        ] {
            assert_eq!(ids(|query| query.find = find.to_owned()), found, "{find}");
        }
        let of_state = |state: &str| ids(|query| query.state = Some(state.to_owned()));
        assert_eq!(
            (of_state("draining"), of_state("unheard")),
            (vec!["b".to_owned()], vec!["c".to_owned()])
        );
    }

    #[test]
    fn they_come_in_every_order_and_in_parts() {
        let sorted = |sort| ids(|query| query.sort = sort).concat();
        for (sort, order) in [
            (UpstreamSort::Id, "abc"),
            (UpstreamSort::State, "cba"),
            (UpstreamSort::Load, "abc"),
            (UpstreamSort::Waiting, "bac"),
            (UpstreamSort::KvCache, "abc"),
            (UpstreamSort::ReportAge, "cab"),
        ] {
            assert_eq!(sorted(sort), order, "{sort:?}");
        }
        let part = |offset, limit| ids(|query| (query.offset, query.limit) = (offset, Some(limit))).concat();
        assert_eq!(
            (part(0, 2), part(2, 2), part(3, 2)),
            ("ab".to_owned(), "c".to_owned(), String::new())
        );
    }

    #[test]
    fn the_totals_are_those_of_all_and_details_those_of_one() {
        let mut query = UpstreamQuery::default();
        (query.find, query.details) = ("llama".to_owned(), true);
        let page = UpstreamPage::of(&snapshot(), &query, Moment::ZERO);
        assert_eq!(
            (page.found, page.totals.upstreams, page.totals.serving),
            (1, 3, 1)
        );
        assert_eq!(page.totals.limit_weight, None, "one has told no limit");
        let details = page.upstreams[0].details.as_ref().unwrap();
        assert_eq!(
            (details.serves_any, &details.models[..]),
            (false, &["Llama".to_owned()][..])
        );
        let adapter = ListedAdapter {
            name: "sql".to_owned(),
            active: true,
        };
        assert_eq!(
            (&details.adapters[..], details.leases.id.as_str()),
            (&[adapter][..], "b")
        );
    }
}
