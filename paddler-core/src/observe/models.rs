//! How do requests fare, by the model that they ask for?

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use super::histogram::{Histogram, TOKENS};
use super::telemetry::End;
use crate::status::Snapshot;

/// The most models that have series of their own, since the start.
const MOST: usize = 256;

/// The label of all others: of models that nobody has, of those beyond [`MOST`], and of requests that name none.
const OTHER: &str = "other";

/// How a request has ended, as it is counted.
pub(super) const RESULTS: [&str; 4] = ["answered", "refused", "cut_short", "left"];

/// What is counted of one model.
#[derive(Debug)]
pub(crate) struct ModelFigures {
    /// In the order of [`RESULTS`].
    pub(super) results: [AtomicU64; 4],
    pub(super) duration: Histogram,
    pub(super) first_token: Histogram,
    pub(super) per_token: Histogram,
    pub(super) per_piece: Histogram,
    pub(super) prompt_tokens: AtomicU64,
    pub(super) output_tokens: AtomicU64,
}

impl Default for ModelFigures {
    fn default() -> Self {
        Self {
            results: Default::default(),
            duration: Histogram::default(),
            first_token: Histogram::default(),
            per_token: Histogram::over(TOKENS),
            per_piece: Histogram::over(TOKENS),
            prompt_tokens: AtomicU64::default(),
            output_tokens: AtomicU64::default(),
        }
    }
}

type FiguresByModel = HashMap<Arc<str>, Arc<ModelFigures>>;

/// The figures of all models. A request that names one which is known takes no lock.
#[derive(Debug, Default)]
pub(super) struct ByModel {
    known: ArcSwap<FiguresByModel>,
    other: Arc<ModelFigures>,
}

impl ByModel {
    /// Those of this model, if an upstream has it; else those of all others.
    pub(super) fn of(&self, model: Option<&str>, snapshot: &Snapshot) -> Arc<ModelFigures> {
        // A model may well be called so, and a page with one series twice is not read at all.
        let Some(model) = model.filter(|model| *model != OTHER) else {
            return self.other.clone();
        };
        if let Some(figures) = self.known.load().get(model) {
            return figures.clone();
        }
        // What clients make up must not make series.
        if snapshot.model(model).is_none() {
            return self.other.clone();
        }
        // Once it is full, nothing is copied for those beyond.
        if self.known.load().len() >= MOST {
            return self.other.clone();
        }
        self.add(model)
    }

    fn add(&self, model: &str) -> Arc<ModelFigures> {
        self.known.rcu(|known| {
            let mut known = FiguresByModel::clone(known);
            if known.len() < MOST {
                known.entry(model.into()).or_default();
            }
            known
        });
        self.known.load().get(model).unwrap_or(&self.other).clone()
    }

    /// Each model with its figures, by name; the last are those of all others.
    pub(super) fn all(&self) -> Vec<(Arc<str>, Arc<ModelFigures>)> {
        let mut all: Vec<_> = self
            .known
            .load()
            .iter()
            .map(|(name, figures)| (name.clone(), figures.clone()))
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all.push((OTHER.into(), self.other.clone()));
        all
    }
}

/// A request that counts for its model. Dropped before anybody said how it ended, its client has left.
#[derive(Debug)]
pub(crate) struct Measured {
    to: Arc<ModelFigures>,
    arrived: Instant,
    first: Option<Instant>,
    pieces: u32,
    tokens: Option<u64>,
    is_error: bool,
    streams: bool,
    result: usize,
}

impl Measured {
    pub(super) fn new(to: Arc<ModelFigures>, arrived: Instant) -> Self {
        Self {
            to,
            arrived,
            first: None,
            pieces: 0,
            tokens: None,
            is_error: false,
            streams: false,
            result: 3,
        }
    }

    /// It is answered with this status.
    pub(crate) fn status(&mut self, status: u16) {
        self.is_error = status >= 400;
    }

    /// Whether the answer is a stream of events: of any other the first byte says nothing of the first token.
    pub(crate) fn streams(&mut self, events: bool) {
        self.streams = events;
    }

    /// A piece of the answer passes.
    pub(crate) fn saw(&mut self) {
        self.pieces = self.pieces.saturating_add(1);
        if self.first.is_none() {
            let now = Instant::now();
            self.first = Some(now);
            if self.streams && !self.is_error {
                self.to.first_token.add(now.duration_since(self.arrived));
            }
        }
    }

    /// What it says that it used.
    pub(crate) fn used(&mut self, prompt: Option<u64>, output: u64) {
        self.to.prompt_tokens.fetch_add(prompt.unwrap_or(0), Relaxed);
        self.to.output_tokens.fetch_add(output, Relaxed);
        self.tokens = Some(output);
    }

    /// It has come to this end.
    pub(crate) fn end(mut self, end: End) {
        self.result = match end {
            End::Complete | End::Here if self.is_error => 1,
            End::Complete | End::Here => 0,
            End::CutShort => 2,
            End::Left => 3,
        };
    }

    /// The time that it took, and that its tokens took.
    fn times(&self, first: Instant) {
        let now = Instant::now();
        self.to.duration.add(now.duration_since(self.arrived));
        let (many, to) = match self.tokens {
            Some(tokens) => (tokens, &self.to.per_token),
            None => (u64::from(self.pieces), &self.to.per_piece),
        };
        if let (true, Some(after @ 1..)) = (self.streams, many.checked_sub(1)) {
            let spent = now.duration_since(first).as_secs_f64() / after as f64;
            to.add(Duration::try_from_secs_f64(spent).unwrap_or_default());
        }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.to.results[self.result].fetch_add(1, Relaxed);
        if let (0, Some(first)) = (self.result, self.first) {
            self.times(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;

    use super::*;
    use crate::Moment;
    use crate::schedule::trees;
    use crate::status::{StatusBoard, StatusEvent};
    use crate::upstream::{ModelEntry, Models, UpstreamSpec};

    fn snapshot(names: impl IntoIterator<Item = String>) -> Arc<Snapshot> {
        let mut board = StatusBoard::new(trees::gateway());
        let models = names.into_iter().map(ModelEntry::new).collect();
        let spec = UpstreamSpec::new("a", "http://127.0.0.1:1").unwrap();
        let spec = spec.models(Models::Listed(models));
        board.apply(StatusEvent::Upsert(spec), Moment::ZERO);
        board.publish(Moment::ZERO)
    }

    fn answer(models: &ByModel, name: Option<&str>, snapshot: &Snapshot) {
        let mut measured = Measured::new(models.of(name, snapshot), Instant::now());
        measured.status(200);
        measured.streams(true);
        (0..10).for_each(|_| measured.saw());
        measured.used(Some(3), 10);
        measured.end(End::Complete);
    }

    #[test]
    fn a_request_for_a_known_model_allocates_nothing() {
        let (models, snapshot) = (ByModel::default(), snapshot(["m".to_owned()]));
        answer(&models, Some("m"), &snapshot);
        let allocated = measure(|| {
            answer(&models, Some("m"), &snapshot);
            answer(&models, Some("nobody has it"), &snapshot);
            answer(&models, None, &snapshot);
        });
        assert_eq!(allocated.count_total, 0);
        let counts = |name: &str| {
            let all = models.all();
            let (_, figures) = all.iter().find(|(known, _)| **known == *name).unwrap();
            figures.results[0].load(Relaxed)
        };
        assert_eq!((counts("m"), counts(OTHER)), (2, 2));
    }

    #[test]
    fn there_are_so_many_series_and_no_more() {
        let name = |number: usize| format!("model-{number}");
        let (models, snapshot) = (ByModel::default(), snapshot((0..2 * MOST).map(name)));
        std::thread::scope(|scope| {
            for half in [0, 1] {
                let (models, snapshot) = (&models, &snapshot);
                scope.spawn(move || {
                    (0..MOST).for_each(|number| answer(models, Some(&name(2 * number + half)), snapshot));
                });
            }
        });
        let all = models.all();
        assert_eq!(all.len(), MOST + 1);
        let sum: u64 = all
            .iter()
            .map(|(_, figures)| figures.results[0].load(Relaxed))
            .sum();
        assert_eq!(sum, 2 * MOST as u64, "none is lost");
        assert_eq!(&*all[MOST].0, OTHER);
    }

    #[test]
    fn a_model_that_is_called_other_is_there_once() {
        let (models, snapshot) = (ByModel::default(), snapshot([OTHER.to_owned()]));
        answer(&models, Some(OTHER), &snapshot);
        answer(&models, None, &snapshot);
        let all = models.all();
        let counts = all
            .iter()
            .map(|(name, figures)| (&**name, figures.results[0].load(Relaxed)));
        assert_eq!(counts.collect::<Vec<_>>(), [(OTHER, 2)]);
    }
}
