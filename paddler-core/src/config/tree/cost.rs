//! How is a cost written?

use std::sync::Arc;

use super::Compiler;
use super::call::Call;
use crate::config::read::At;
use crate::config::registry;
use crate::schedule::Cost;
use crate::schedule::costs::{in_flight_share, kv_pressure, prefill_product, queue, weighted};

/// The costs that are built in.
pub(in crate::config) const COSTS: &[&str] = &[
    "queue",
    "in_flight_share",
    "kv_pressure",
    "prefill_product",
    "weighted",
];

impl Compiler<'_> {
    pub(super) fn cost(&mut self, at: &At<'_>) -> Option<Arc<dyn Cost>> {
        if self.faults.notes() {
            let added = self.registry.costs().keys();
            self.note(at, "cost", (COSTS, added), |this, call| {
                this.cost_of(call);
            });
            return None;
        }
        let call = self.call(at, "a cost")?;
        self.cost_of(call)
    }

    fn cost_of(&mut self, call: Call<'_>) -> Option<Arc<dyn Cost>> {
        let cost: Arc<dyn Cost> = match call.name {
            "queue" => Arc::new(queue()),
            "in_flight_share" => Arc::new(in_flight_share()),
            "kv_pressure" => Arc::new(kv_pressure()),
            "prefill_product" => Arc::new(prefill_product()),
            "weighted" => return self.weighted(&call),
            _ => return self.registered_cost(call),
        };
        self.alone(&call)?;
        Some(cost)
    }

    fn registered_cost(&mut self, call: Call<'_>) -> Option<Arc<dyn Cost>> {
        let costs = self.registry.costs();
        let Some(make) = costs.get(call.name) else {
            let known = COSTS.iter().copied().chain(costs.keys().map(String::as_str));
            self.unknown(&call, "a cost", known);
            return None;
        };
        registry::make(make, (&call.path, call.place), call.params, self.faults)
    }

    fn weighted(&mut self, call: &Call<'_>) -> Option<Arc<dyn Cost>> {
        let params = self.params(
            call,
            "{weighted: [{weight: 2, cost: queue}, {weight: 1, cost: kv_pressure}]}",
        )?;
        let parts = params.some_list(self.faults)?;
        let parts: Vec<_> = parts.iter().map(|part| self.weighted_part(part)).collect();
        let parts: Option<Vec<_>> = parts.into_iter().collect();
        Some(Arc::new(weighted(parts?)))
    }

    fn weighted_part(&mut self, at: &At<'_>) -> Option<(f32, Arc<dyn Cost>)> {
        let mut fields = at.fields(self.faults)?;
        let weight = fields.need("weight", self.faults);
        let weight = weight.and_then(|at| {
            let weight = at.number(self.faults, 0.0..=f64::from(f32::MAX))? as f32;
            if weight == 0.0 {
                at.fault_mend(
                    self.faults,
                    "a weight of 0 counts for nothing",
                    "leave the cost out",
                );
                return None;
            }
            Some(weight)
        });
        let cost = fields.need("cost", self.faults);
        let cost = cost.and_then(|at| self.cost(&at));
        fields.end(self.faults);
        Some((weight?, cost?))
    }
}
