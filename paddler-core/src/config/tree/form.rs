//! What belongs to each kind of node?

use std::time::Duration;

use serde_json::json;

use super::Compiler;
use super::call::Call;
use super::node::Built;
use crate::config::read::{At, Fields};
use crate::config::value::{Kind, quoted};
use crate::schedule::{Alternative, Class, Gate, Key, Node};

const CLASSES: [(&str, Class); 3] = [
    ("never", Class::Never),
    ("later", Class::Later),
    ("shed", Class::Shed),
];

const KEYS: [(&str, Key); 3] = [
    ("session", Key::Session),
    ("tenant", Key::Tenant),
    ("model", Key::Model),
];

const POOL: [&str; 3] = ["any", "all", "mean"];

const CHOICES: [&str; 4] = ["random", "least", "two_choices", "rendezvous"];

const SAY_ELSE: &str = "say what happens otherwise with `else`";

impl Compiler<'_> {
    pub(super) fn require<'v>(
        &mut self,
        at: &At<'v>,
        inner: &At<'v>,
        fields: &mut Fields<'v>,
    ) -> Option<Built<'v>> {
        let filter = self.filter(inner);
        let class = fields.take("else", self.faults);
        let class = class.map(|at| at.word(self.faults, &CLASSES));
        let node = match class {
            None => Node::require(filter?),
            Some(class) => Node::require_or(filter?, class?),
        };
        Some(Built::step(node, at))
    }

    /// A node with `then` and `else`.
    pub(super) fn fork<'v>(
        &mut self,
        at: &At<'v>,
        fields: &mut Fields<'v>,
        last: bool,
        make: impl FnOnce(Node, Node) -> Node,
    ) -> Built<'v> {
        let then = match fields.need("then", self.faults) {
            Some(then) => self.node(&then, last),
            None => Built::stand_in(at, last),
        };
        let otherwise = self.otherwise(at, fields, last);
        let (nodes, above) = Built::apart(at, vec![then, otherwise]);
        let mut nodes = nodes.into_iter();
        // Two went in.
        let mut next = || nodes.next().unwrap_or_else(Node::random);
        Built {
            node: make(next(), next()),
            ..above
        }
    }

    /// What stands under `else`. Nothing: goes on with what follows.
    fn otherwise<'v>(&mut self, at: &At<'v>, fields: &mut Fields<'v>, last: bool) -> Built<'v> {
        if !fields.has("else") {
            fields.take_any("else");
            let open = vec![(at.into(), SAY_ELSE)];
            return Built {
                open,
                ..Built::leaf(Node::list([]), at)
            };
        }
        match fields.take("else", self.faults) {
            Some(otherwise) => self.node(&otherwise, last),
            None => Built::stand_in(at, last),
        }
    }

    pub(super) fn gate(&mut self, at: &At<'_>) -> Option<Gate> {
        if self.faults.notes() {
            self.note(at, "pool", (&POOL, [].iter()), |this, call| {
                this.gate_of(call);
            });
            return None;
        }
        let call = self.call(at, "a condition over the pool")?;
        self.gate_of(call)
    }

    fn gate_of(&mut self, call: Call<'_>) -> Option<Gate> {
        match call.name {
            "any" => {
                let filter = self.params(&call, "{any: slot}")?;
                self.filter(&filter).map(Gate::Any)
            }
            "all" => {
                let filter = self.params(&call, "{all: slot}")?;
                self.filter(&filter).map(Gate::All)
            }
            "mean" => {
                let mut fields = self
                    .params(&call, "{mean: {cost: in_flight_share, below: 0.8}}")?
                    .fields(self.faults)?;
                let cost = fields.need("cost", self.faults);
                let cost = cost.and_then(|at| self.cost(&at));
                let most = f64::from(f32::MAX);
                let below = fields.need("below", self.faults);
                let below = below.and_then(|at| at.number(self.faults, -most..=most));
                fields.end(self.faults);
                Some(Gate::MeanBelow(cost?, below? as f32))
            }
            _ => {
                self.unknown(&call, "a condition over the pool", POOL.into_iter());
                None
            }
        }
    }

    pub(super) fn first_of<'v>(&mut self, at: &At<'v>, inner: &At<'v>, last: bool) -> Option<Built<'v>> {
        let list = inner.list(self.faults)?;
        let mut patience = Vec::with_capacity(list.len());
        let mut parts = Vec::with_capacity(list.len());
        for one in &list {
            let (part, wait) = self.alternative(one, last);
            parts.push(part);
            patience.push(wait);
        }
        let (nodes, above) = Built::apart(at, parts);
        let alternatives = nodes
            .into_iter()
            .zip(patience)
            .map(|(node, patience)| match patience {
                None => Alternative::new(node),
                Some(patience) => Alternative::with_patience(node, patience),
            });
        Some(Built {
            node: Node::first_of(alternatives),
            ..above
        })
    }

    /// A node, or `{tree: NODE, patience: 2s}`.
    fn alternative<'v>(&mut self, at: &At<'v>, last: bool) -> (Built<'v>, Option<Duration>) {
        const HOUR: Duration = Duration::from_secs(3600);
        let is_long = |key: &str| at.value.get(key).is_some();
        if self.faults.notes() {
            self.node(at, last);
        } else if !is_long("tree") && !is_long("patience") {
            return (self.node(at, last), None);
        }
        let Some(mut fields) = at.fields(self.faults) else {
            return (Built::stand_in(at, last), None);
        };
        let patience = fields.take("patience", self.faults);
        let patience = patience.and_then(|at| at.duration(self.faults, Duration::ZERO..=HOUR));
        let built = match fields.need("tree", self.faults) {
            Some(tree) => self.node(&tree, last),
            None => Built::stand_in(at, last),
        };
        fields.end(self.faults);
        (built, patience)
    }

    pub(super) fn split<'v>(&mut self, at: &At<'v>, inner: &At<'v>, last: bool) -> Option<Built<'v>> {
        let list = inner.list(self.faults)?;
        let mut weights = Vec::with_capacity(list.len());
        let mut parts = Vec::with_capacity(list.len());
        for one in &list {
            let (weight, part) = self.part(one, last);
            weights.push(weight);
            parts.push(part);
        }
        let (nodes, above) = Built::apart(at, parts);
        Some(Built {
            node: Node::split(weights.into_iter().zip(nodes)),
            ..above
        })
    }

    /// `{weight: 9, tree: NODE}`.
    fn part<'v>(&mut self, at: &At<'v>, last: bool) -> (u32, Built<'v>) {
        // A weight that cannot be read counts as one, so that its fault is the only one.
        let Some(mut fields) = at.fields(self.faults) else {
            return (1, Built::stand_in(at, last));
        };
        let weight = fields.need("weight", self.faults);
        let weight = weight.and_then(|at| at.whole(self.faults, 0..=i64::from(u32::MAX)));
        let built = match fields.need("tree", self.faults) {
            Some(tree) => self.node(&tree, last),
            None => Built::stand_in(at, last),
        };
        fields.end(self.faults);
        (weight.unwrap_or(1), built)
    }

    pub(super) fn by_model<'v>(
        &mut self,
        at: &At<'v>,
        inner: &At<'v>,
        fields: &mut Fields<'v>,
        last: bool,
    ) -> Option<Built<'v>> {
        let mut models = inner.pairs(self.faults)?;
        if models.is_empty() {
            inner.fault(self.faults, "no model is named");
            return None;
        }
        // A tree numbers them by name.
        models.sort_by(|(left, _), (right, _)| left.text.cmp(&right.text));
        let mut parts: Vec<_> = models.iter().map(|(_, tree)| self.node(tree, last)).collect();
        parts.push(self.otherwise(at, fields, last));
        let (mut nodes, above) = Built::apart(at, parts);
        // The last one that went in.
        let otherwise = nodes.pop().unwrap_or_else(Node::random);
        let names = models.iter().map(|(name, _)| name.text.as_str());
        Some(Built {
            node: Node::by_model(names.zip(nodes), otherwise),
            ..above
        })
    }

    pub(super) fn reject<'v>(&mut self, at: &At<'v>, inner: &At<'v>) -> Option<Built<'v>> {
        if let Kind::String(class) = &inner.value.kind {
            let example = format!("write {{class: {class}, reason: word}}");
            inner.fault_mend(self.faults, "`reject` needs a class and a reason", example);
            return None;
        }
        let mut fields = inner.fields(self.faults)?;
        let class = fields.need("class", self.faults);
        let class = class.and_then(|at| at.word(self.faults, &CLASSES));
        let reason = fields.need("reason", self.faults);
        let reason = reason.and_then(|at| self.reason(&at));
        fields.end(self.faults);
        Some(Built::leaf(Node::reject(class?, reason?), at))
    }

    /// It goes into headers and metrics.
    fn reason<'v>(&mut self, at: &At<'v>) -> Option<&'v str> {
        if self.faults.notes() {
            at.takes(
                self.faults,
                || json!({"type": "string", "pattern": "^[a-z0-9_]{1,64}$"}),
            );
            return None;
        }
        let text = at.text(self.faults)?;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if text.len() > 64 || !text.chars().all(plain) {
            let problem = format!("{} is not a reason", quoted(text));
            at.fault_mend(self.faults, problem, "write up to 64 of a-z, 0-9 and _");
            return None;
        }
        Some(text)
    }

    pub(super) fn pick(&mut self, at: &At<'_>) -> Option<Node> {
        if self.faults.notes() {
            self.note(at, "choice", (&CHOICES, [].iter()), |this, call| {
                this.pick_of(call);
            });
            return None;
        }
        let call = self.call(at, "a way to pick")?;
        self.pick_of(call)
    }

    fn pick_of(&mut self, call: Call<'_>) -> Option<Node> {
        match call.name {
            "random" => self.alone(&call).map(|()| Node::random()),
            "least" => {
                let cost = self.params(&call, "{least: prefill_product}")?;
                Some(Node::least(self.cost(&cost)?))
            }
            "two_choices" => {
                let cost = self.params(&call, "{two_choices: prefill_product}")?;
                Some(Node::two_choices(self.cost(&cost)?))
            }
            "rendezvous" => {
                let key = self.params(&call, "{rendezvous: session}")?;
                Some(Node::rendezvous(key.word(self.faults, &KEYS)?))
            }
            _ => {
                self.unknown(&call, "a way to pick", CHOICES.into_iter());
                None
            }
        }
    }
}
