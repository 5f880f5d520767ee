//! How does a router behind this one say how it is?
//!
//! In one page: what all its upstreams come to, as if it were one engine, and which routers are behind it, so that a ring of
//! routers is seen before a request goes round in it. The page is written and read here, and nowhere else.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Endpoint;
use super::answer::{json, refusal, short};
use crate::status::{Health, Report, Signal};
use crate::upstream::Models;

/// How far away a router is still told of, in hops. No fleet is that deep: what is farther is the echo of a ring that was.
const FARTHEST: u8 = 16;

/// How many routers are told of at most.
const MOST: usize = 256;

/// How many names of models, or of adapters, are believed, and how long one may be, in bytes.
const MOST_NAMES: usize = 10_000;
const LONGEST_NAME: usize = 1_024;

/// The version of the page.
const VERSION: u32 = 1;

/// Routers and how many hops away each is: of a page, the one that tells is 0 hops away. Rides along on a [`Report`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Behind(BTreeMap<Arc<str>, u8>);

impl Behind {
    /// What a router of this name tells, that has these behind it.
    ///
    /// ```
    /// use paddler_core::source::paddler::Behind;
    ///
    /// let far = Behind::of("far", []);
    /// let near = Behind::of("near", [&far]);
    /// assert!(near.leads_to("far") && near.leads_to("near") && !far.leads_to("near"));
    /// ```
    pub fn of<'b>(name: &str, behind: impl IntoIterator<Item = &'b Self>) -> Self {
        let mut all = BTreeMap::new();
        for (name, hops) in behind.into_iter().flat_map(|each| &each.0) {
            let hops = hops.saturating_add(1);
            let known = all.entry(name.clone()).or_insert(hops);
            *known = hops.min(*known);
        }
        all.insert(name.into(), 0);
        Self(all).bounded()
    }

    /// The nearest of them.
    pub(crate) fn bounded(self) -> Self {
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.retain(|(name, hops)| *hops <= FARTHEST && is_name(name));
        all.sort_by_key(|(_, hops)| *hops);
        all.truncate(MOST);
        Self(all.into_iter().collect())
    }

    /// Whether a request that goes there could come to this router.
    pub fn leads_to(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// The page at [`Endpoint::Fleet`].
#[derive(Debug, Serialize, Deserialize)]
pub struct StatusPage {
    version: u32,
    routers: Behind,
    status: Report,
}

impl StatusPage {
    /// A page of what all upstreams of a router come to.
    pub fn new(routers: Behind, status: Report) -> Self {
        Self {
            version: VERSION,
            routers,
            status,
        }
    }
}

/// Reads `GET /paddler/v1/status` into the report, all of it, within bounds. A router that answers anything else is an older
/// or a newer one, or wants another key: it is taken to be ready, or with 5xx to be failing, and its load is not known.
///
/// ```
/// use paddler_core::source::paddler::{Behind, StatusPage, read_status};
/// use paddler_core::status::{Health, Report};
///
/// let mut told = Report::new();
/// (told.health, told.slots_total, told.slots_busy) = (Some(Health::Ready), Some(8), Some(3));
/// let page = serde_json::to_vec(&StatusPage::new(Behind::of("a", []), told))?;
///
/// let mut report = Report::new();
/// read_status(200, &page, &mut report);
/// assert_eq!((report.slots_total, report.slots_busy), (Some(8), Some(3)));
/// assert!(report.extensions.get::<Behind>().unwrap().leads_to("a"));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn read_status(status: u16, body: &[u8], report: &mut Report) {
    let page = match status {
        200 => json::<StatusPage>(body).and_then(of_this_version),
        _ => Err(refusal(status, body)),
    };
    match page {
        Ok(page) => {
            *report = believed(page.status);
            report.extensions.insert(page.routers.bounded());
        }
        Err(found) => {
            // One that is older, or newer, serves all the same.
            report.health = Some(if status >= 500 {
                Health::Failing
            } else {
                Health::Ready
            });
            let path = Endpoint::Fleet.path();
            for signal in [Signal::Running, Signal::Waiting, Signal::Slots] {
                report.degrade(signal, path, found.clone());
            }
        }
    }
}

/// What is believed of what another router says.
fn believed(status: Report) -> Report {
    let mut status = bounded(status);
    if let Some(Models::Listed(models)) = &mut status.models {
        models.iter_mut().for_each(|model| model.aliases.clear());
    }
    for one in &mut status.degraded {
        one.expected = Endpoint::Fleet.path().to_owned();
    }
    status.loaded_adapters = None;
    status
}

/// A report from outside, within bounds: it may be anybody's.
pub(crate) fn bounded(mut status: Report) -> Report {
    let share = |usage: &f64| (0.0..=1.0).contains(usage);
    status.kv_cache_usage = status.kv_cache_usage.filter(share);
    if let Some(Models::Listed(models)) = &mut status.models {
        let mut seen = HashSet::new();
        models.truncate(MOST_NAMES);
        models.retain(|model| is_name(&model.id) && seen.insert(model.id.clone()));
        for model in models {
            model.aliases.truncate(MOST_NAMES);
            model.aliases.retain(|alias| is_name(alias));
            model.parent = model.parent.take().filter(|parent| is_name(parent));
        }
    }
    let mut left = MOST_NAMES;
    for room in &mut status.rooms {
        room.models.truncate(left);
        left -= room.models.len();
        room.models.retain(|name| is_name(name));
    }
    status.rooms.retain(|room| !room.models.is_empty());
    if let Some(adapters) = &mut status.adapters {
        for names in [&mut adapters.running, &mut adapters.waiting] {
            let mut seen = HashSet::new();
            names.truncate(MOST_NAMES);
            names.retain(|name| is_name(name) && seen.insert(name.clone()));
        }
    }
    let mut seen = HashSet::new();
    status.degraded.retain(|one| seen.insert(one.signal));
    for one in &mut status.degraded {
        (one.expected, one.found) = (short(&one.expected), short(&one.found));
    }
    if let Some(loaded) = &mut status.loaded_adapters {
        loaded.truncate(MOST_NAMES);
    }
    status
}

fn is_name(name: &str) -> bool {
    (1..=LONGEST_NAME).contains(&name.len())
}

fn of_this_version(page: StatusPage) -> Result<StatusPage, String> {
    let version = page.version;
    if version == VERSION {
        Ok(page)
    } else {
        Err(format!("version {version}, and only {VERSION} can be read"))
    }
}

/// Says in a report that what it tells of leads back to the router that asks: nothing may be sent there.
#[cfg(feature = "proxy")]
pub(crate) fn close_ring(report: &mut Report, own_name: &str) {
    let leads_back = |behind: &Behind| behind.leads_to(own_name);
    if report.extensions.get().is_some_and(leads_back) {
        report.health = Some(Health::Failing);
        let found = "a ring: one of its upstreams, or theirs, is this router; take one of them out";
        report.degrade(Signal::Health, Endpoint::Fleet.path(), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Adapters;
    use crate::upstream::ModelEntry;

    #[test]
    fn what_is_no_page_is_degraded_and_nothing_is_known() {
        let future = br#"{"version": 2, "routers": {}, "status": {}}"#;
        for (status, body, found) in [
            (404, &b"not here"[..], "404"),
            (401, b"", "401: the upstream wants a key"),
            (200, b"<html>", "not JSON"),
            (200, b"{}", "unknown shape"),
            (200, future, "version 2, and only 1 can be read"),
            (503, br#"{"error": "loading"}"#, "503: loading"),
        ] {
            let mut report = Report::new();
            read_status(status, body, &mut report);
            assert!(
                report.degraded[0].found.starts_with(found),
                "{:?}",
                report.degraded
            );
            assert_eq!(report.health == Some(Health::Failing), status == 503);
            assert!(report.models.is_none() && report.extensions.get::<Behind>().is_none());
        }
    }

    #[test]
    fn the_echo_of_a_ring_dies_out() {
        // Two routers that have each other behind them, and one that has left.
        let gone = Behind::of("gone", []);
        let (mut one, mut other) = (Behind::of("one", [&gone]), Behind::of("other", []));
        for _ in 0..usize::from(FARTHEST) {
            (one, other) = (Behind::of("one", [&other]), Behind::of("other", [&one]));
        }
        assert!(!one.leads_to("gone") && !other.leads_to("gone"));
        assert!(one.leads_to("other") && other.leads_to("one"));
    }

    #[test]
    fn many_routers_have_a_bound() {
        let each: Vec<Behind> = (0..1_000).map(|n| Behind::of(&n.to_string(), [])).collect();
        let all = Behind::of("front", &each);
        assert_eq!(all.0.len(), MOST);
        assert!(all.leads_to("front"));
        // Names that come first push nobody out who is nearer.
        let far = Behind::of("!", &each);
        let near = Behind::of("zz", []);
        assert!(Behind::of("front", [&far, &near]).leads_to("zz"));
    }

    #[test]
    fn what_another_says_is_believed_within_bounds() {
        let mut told = Report::new();
        let names = ["", "m", "m", &"x".repeat(LONGEST_NAME + 1)];
        told.models = Some(Models::Listed(
            names.iter().map(|name| ModelEntry::new(*name)).collect(),
        ));
        told.adapters = Some(Adapters {
            max: None,
            running: (0..2 * MOST_NAMES).map(|n| n.to_string().into()).collect(),
            waiting: vec!["".into()],
        });
        for n in 0..1_000 {
            told.degrade(Signal::Models, format!("made up {n}"), "x".repeat(1_000));
        }
        let page = serde_json::to_vec(&StatusPage::new(Behind::of("a", []), told)).unwrap();
        let mut report = Report::new();
        read_status(200, &page, &mut report);
        assert_eq!(report.models, Some(Models::Listed(vec![ModelEntry::new("m")])));
        let adapters = report.adapters.unwrap();
        assert_eq!((adapters.running.len(), adapters.waiting.len()), (MOST_NAMES, 0));
        assert_eq!(report.degraded.len(), 1);
        assert_eq!(report.degraded[0].expected, Endpoint::Fleet.path());
        assert!(report.degraded[0].found.len() < 200);
    }
}
