//! What is the value of one signal on a metrics page?

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::prometheus::{Lines, Sample, Selector, samples};
use crate::status::{Report, Signal};

/// The largest value that is believed to be a count of requests.
const MAX_COUNT: f64 = 2_147_483_648.0;

/// How far above 1 a share may be by rounding.
const ROUNDING: f64 = 1e-6;

/// Gathers one signal while a page is walked over.
///
/// The first of its names that the page has is read, the others are ignored. Of series of the same `engine` (the rank
/// of a data-parallel group, SGLang's `dp_rank`; none is a rank of its own), or of what is told apart by other labels
/// ([`of_each`](Self::of_each)), the newest counts, the first if none is newer.
#[derive(Debug)]
pub(super) struct Gauge<'n, 'a> {
    signal: Signal,
    names: &'n [Selector],
    required: bool,
    /// Which of the names is read.
    read: usize,
    ranks: BTreeMap<Vec<Cow<'a, str>>, Reading>,
    /// Labels that tell ranks apart, all together. None: `engine` or `dp_rank`.
    apart: &'static [&'static str],
}

#[derive(Debug)]
struct Reading {
    timestamp_ms: Option<i64>,
    value: f64,
}

impl<'n, 'a> Gauge<'n, 'a> {
    /// A signal that the page should have under one of `names`. No names: it is not looked for.
    pub(super) fn required(signal: Signal, names: &'n [Selector]) -> Self {
        Self {
            signal,
            names,
            required: true,
            read: names.len(),
            ranks: BTreeMap::new(),
            apart: &[],
        }
    }

    /// Tells ranks apart by these labels.
    pub(super) fn of_each(self, apart: &'static [&'static str]) -> Self {
        Self { apart, ..self }
    }

    /// A signal that the page may as well not have.
    pub(super) fn optional(signal: Signal, names: &'n [Selector]) -> Self {
        Self {
            required: false,
            ..Self::required(signal, names)
        }
    }

    /// Takes a sample of the page into account.
    pub(super) fn offer(&mut self, sample: &Sample<'a>) {
        let mut candidates = self.names.iter().take(self.read.saturating_add(1));
        let Some(name) = candidates.position(|name| name.matches(sample)) else {
            return;
        };
        if name < self.read {
            self.read = name;
            self.ranks.clear();
        }
        let rank = if self.apart.is_empty() {
            let rank = sample.label("engine").or_else(|| sample.label("dp_rank"));
            rank.into_iter().collect()
        } else {
            let labels = self.apart.iter().map(|label| sample.label(label));
            labels.map(Option::unwrap_or_default).collect()
        };
        let reading = Reading {
            timestamp_ms: sample.timestamp_ms,
            value: sample.value,
        };
        self.ranks
            .entry(rank)
            .and_modify(|kept| {
                if reading.timestamp_ms > kept.timestamp_ms {
                    kept.timestamp_ms = reading.timestamp_ms;
                    kept.value = reading.value;
                }
            })
            .or_insert(reading);
    }

    /// The signal as a count: the sum over the ranks. What is wrong with it is put into the report.
    pub(super) fn count(&self, page: &WalkedPage<'_>, report: &mut Report) -> Option<u32> {
        self.one(page, report, "not a count", |values| {
            let mut sum = 0.0;
            for value in values {
                sum += whole(value)?;
            }
            // Whole and at most 2^31, so the cast is exact.
            whole(sum).map(|sum| sum as u32).map_err(|_| sum)
        })
    }

    /// The signal as a share from 0 to 1: the highest over the ranks, since a request meets the full one as likely as
    /// any other. What is wrong with it is put into the report.
    pub(super) fn share(&self, page: &WalkedPage<'_>, report: &mut Report) -> Option<f64> {
        self.one(page, report, "not a share from 0 to 1", |values| {
            let mut highest: f64 = 0.0;
            for value in values {
                if !(0.0..=1.0 + ROUNDING).contains(&value) {
                    return Err(value);
                }
                highest = highest.max(value.min(1.0));
            }
            Ok(highest)
        })
    }

    fn one<T>(
        &self,
        page: &WalkedPage<'_>,
        report: &mut Report,
        wrong: &str,
        fold: impl FnOnce(&mut dyn Iterator<Item = f64>) -> Result<T, f64>,
    ) -> Option<T> {
        let expected = self.names.get(self.read).or(self.names.first())?;
        if self.ranks.is_empty() {
            if self.required {
                report.degrade(self.signal, expected.to_string(), page.absence());
            }
            return None;
        }
        match fold(&mut self.ranks.values().map(|reading| reading.value)) {
            Ok(value) => Some(value),
            Err(value) => {
                report.degrade(self.signal, expected.to_string(), format!("{wrong}: {value:?}"));
                None
            }
        }
    }
}

/// The value, if it can be a count of requests; else the value as the fault.
fn whole(value: f64) -> Result<f64, f64> {
    let sound = value.fract() == 0.0 && (0.0..=MAX_COUNT).contains(&value);
    if sound { Ok(value) } else { Err(value) }
}

/// A page that was walked over, to say why something is not on it.
#[derive(Debug)]
pub(super) struct WalkedPage<'a> {
    page: &'a [u8],
    /// How many samples it has, and how many lines cannot be read.
    counted: OnceCell<(usize, usize)>,
}

impl<'a> WalkedPage<'a> {
    /// Walks over a page once and shows each sample that has one of these names to `see`. A page of vLLM has hundreds of others.
    pub(super) fn walk(page: &'a [u8], names: &[&[Selector]], mut see: impl FnMut(&Sample<'a>)) -> Self {
        let mut lines = Lines::new(page);
        while let Some(line) = lines.next() {
            if names.iter().copied().flatten().any(|name| name.begins(line))
                && let Some(sample) = lines.read(line)
            {
                see(&sample);
            }
        }
        Self {
            page,
            counted: OnceCell::new(),
        }
    }

    /// What was found where a metric should have been.
    pub(super) fn absence(&self) -> String {
        match self.counted.get_or_init(|| counted(self.page)) {
            (_, 0) => "missing".to_owned(),
            (0, _) => "not a metrics page".to_owned(),
            (_, malformed) => format!("missing, and {malformed} lines could not be read"),
        }
    }
}

fn counted(page: &[u8]) -> (usize, usize) {
    let mut on_page = samples(page);
    let samples = on_page.by_ref().count();
    (samples, on_page.malformed())
}
