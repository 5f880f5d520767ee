//! Who could serve a model, were it not for what is the matter with it now, and from when on?

use super::names::ModelRow;
use super::snapshot::Snapshot;
use crate::Moment;
use crate::upstream::{LANES, UpstreamId, UpstreamIndex, is_in, upstreams};

impl Snapshot {
    /// Who could serve the model by what is known, whatever is the matter with it now: who lists it, and who answers for any;
    /// where nobody lists it, also who has not told. Everybody where no model is asked for, or all have others: a tree need
    /// not ask for models. But nobody whom the request does not reach. `instead`: the model serves it instead of its own.
    fn could_serve(&self, model: Option<&str>, instead: bool) -> impl Iterator<Item = UpstreamIndex> {
        let row = model.and_then(|name| self.model(name));
        let columns = &self.columns;
        let reached = columns.reached(model.is_some(), instead);
        let has_it = move |chunk: usize| {
            let untold = if row.is_some_and(ModelRow::is_listed) {
                0
            } else {
                !columns.told_models[chunk]
            };
            let lists = row.map_or(0, |row| row.serves.get(chunk).copied().unwrap_or(0));
            reached.word(chunk) & (columns.any_model[chunk] | lists | untold)
        };
        let chunks = 0..columns.live.len();
        let all = model.is_none() || chunks.clone().all(|chunk| has_it(chunk) == 0);
        let could = chunks.map(move |chunk| if all { reached.word(chunk) } else { has_it(chunk) });
        could.enumerate().flat_map(|(chunk, word)| upstreams(chunk, word))
    }

    /// When the first of those who could serve the model, and are among `only`, can be asked again, where none can now and it
    /// is known of each: because of a pause that it has asked for, or of what the asker has learnt there.
    pub(crate) fn first_back(
        &self,
        (model, instead): (Option<&str>, bool),
        only: Option<&[UpstreamId]>,
        learnt: impl Fn(&UpstreamId) -> Option<Moment>,
        now: Moment,
    ) -> Option<Moment> {
        let mut first: Option<Moment> = None;
        for upstream in self.could_serve(model, instead) {
            let id = &self.spec(upstream)?.id;
            if only.is_some_and(|only| !only.contains(id)) {
                continue;
            }
            let until = [learnt(id), self.paused_until(upstream, now)];
            let until = until.into_iter().flatten().max()?;
            first = Some(first.map_or(until, |first| first.min(until)));
        }
        first
    }

    /// Until when this one has asked to be left alone, if it is so now.
    pub(crate) fn paused_until(&self, upstream: UpstreamIndex, now: Moment) -> Option<Moment> {
        let place = upstream.get();
        // Who lets requests in is not paused, and costs no lock.
        if !is_in(self.ledger.marks(place / LANES).shut, place) {
            return None;
        }
        self.health(upstream)?.paused_until.filter(|until| now < *until)
    }
}
