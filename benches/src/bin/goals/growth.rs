//! How does cost grow with upstreams, models, adapters, the depth of a tree and bodies?
//!
//! Each is measured at two sizes of one thing while all else stays: what is common to both is fixed, the rest is for each more.

use std::fmt::Write as _;
use std::hint::black_box;

use allocation_counter::measure;
use paddler_benches::bodies::Sample;
use paddler_benches::harness::Failure;
use paddler_benches::harness::clock::of_each;
use paddler_benches::pools::{Case, Changing, TREES, Waiting, board_of, id, pool};
use paddler_core::Moment;
use paddler_core::schedule::filters::slot;
use paddler_core::schedule::{Node, Signals, Tree, trees};
use paddler_core::status::StatusEvent;
use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec};

use super::decisions::a_pick;

/// Upstreams where these grow.
const MANY: [usize; 2] = [100, 10_000];

/// Models of an upstream where these grow.
const NAMES: [usize; 2] = [8, 512];

/// Upstreams where it is not they that grow.
const UPSTREAMS: usize = 1_000;

/// The tree, and what is asked of it, of the picks that the model goes by.
const MODELLED: (&str, Case) = ("gateway", Case::Miss);

/// The publishes that it goes by.
const PUBLISH: &str = "publish of a new load";

/// Bodies that grow.
const BODIES: [&str; 3] = ["chat/64KiB", "prose/1MiB", "image/1MiB"];

/// A cost that grows.
pub(crate) struct Law {
    pub(crate) what: String,
    /// What it grows with.
    with: &'static str,
    sizes: [usize; 2],
    /// At these sizes.
    costs: [f64; 2],
    unit: &'static str,
}

impl Law {
    /// What is there in any case, and what each more adds.
    pub(crate) fn parts(&self) -> [f64; 2] {
        let [small, large] = self.sizes.map(|size| size as f64);
        let each = (self.costs[1] - self.costs[0]) / (large - small);
        [self.costs[0] - each * small, each]
    }
}

/// What a pick is called.
fn pick_with(tree: &str, case: Case) -> String {
    format!("pick, `{tree}`, {}", case.name())
}

/// The picks and the publishes that the model goes by.
pub(crate) fn modelled(laws: &[Law]) -> Result<[&Law; 2], Failure> {
    let (tree, case) = MODELLED;
    let law = |name: &str| {
        let law = laws.iter().find(|law| law.what == name);
        law.ok_or_else(|| format!("the model goes by `{name}`, and that is not among what was measured"))
    };
    Ok([law(&pick_with(tree, case))?, law(PUBLISH)?])
}

/// All of them, in Markdown.
pub(crate) fn table(laws: &[Law]) -> String {
    let mut table =
        "| what | grows with | fixed | each more | at | it is | at | it is |\n|---|---|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    for law in laws {
        let ([fixed, each], unit) = (law.parts(), law.unit);
        write!(
            table,
            "| {} | {} | {fixed:.1} {unit} | {each:.3} {unit} |",
            law.what, law.with
        )
        .ok();
        for (size, cost) in law.sizes.iter().zip(law.costs) {
            write!(table, " {size} | {cost:.0} {unit} |").ok();
        }
        table.push('\n');
    }
    table
}

impl Law {
    /// The cost at both sizes.
    fn new(
        what: impl Into<String>,
        with: &'static str,
        sizes: [usize; 2],
        mut cost: impl FnMut(usize) -> Result<f64, Failure>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            what: what.into(),
            with,
            sizes,
            costs: [cost(sizes[0])?, cost(sizes[1])?],
            unit: "ns",
        })
    }

    /// The same in bytes.
    fn in_bytes(mut self) -> Self {
        self.unit = "B";
        self
    }
}

/// Measures all of them, each in the middle of so many rounds.
pub(crate) fn laws(rounds: usize) -> Result<Vec<Law>, Failure> {
    let mut laws = of_picks(rounds)?;
    laws.push(Law::new(PUBLISH, "upstreams", MANY, |upstreams| {
        let mut changing = Changing::new(upstreams)?;
        Ok(nanoseconds(rounds, || drop(black_box(changing.publish()))))
    })?);
    laws.push(renamed(rounds)?);
    laws.push(Law::new(
        "one more waits, and leaves",
        "who wait",
        [0, 10_000],
        |waiting| {
            let mut waiting = Waiting::new(waiting)?;
            Ok(nanoseconds(rounds, || waiting.come_and_go()))
        },
    )?);
    laws.extend(of_bodies(rounds)?);
    let memory = "memory of a board and of what it has published";
    let by_models = Law::new(memory, "models of each of 100 upstreams", NAMES, |models| {
        held(100, models)
    })?;
    laws.push(Law::new(memory, "upstreams", MANY, |upstreams| held(upstreams, 8))?.in_bytes());
    laws.push(by_models.in_bytes());
    Ok(laws)
}

fn of_picks(rounds: usize) -> Result<Vec<Law>, Failure> {
    let mut laws = Vec::new();
    let pick = |tree, case, upstreams| -> Result<f64, Failure> {
        let (snapshot, leases) = pool(tree, case, upstreams)?;
        let took = a_pick(rounds, &snapshot, case) * 1e9;
        drop(leases);
        Ok(took)
    };
    for (name, tree) in TREES {
        for case in Case::ALL {
            laws.push(Law::new(pick_with(name, case), "upstreams", MANY, |upstreams| {
                pick(tree(), case, upstreams)
            })?);
        }
    }
    let affine = pick_with("gateway", Case::Affinity);
    laws.push(Law::new(&*affine, "models of each upstream", NAMES, |models| {
        with_names(rounds, models, 1)
    })?);
    laws.push(Law::new(
        affine,
        "adapters active at each upstream",
        [1, 64],
        |adapters| with_names(rounds, 8, adapters),
    )?);
    laws.push(Law::new(
        "pick, tree of filters that keep nearly all",
        "filters",
        [1, 32],
        |filters| {
            let nodes = (0..filters)
                .map(|_| Node::require(slot()))
                .chain([Node::random()]);
            let tree = Tree::new(Signals::Corrected, Node::list(nodes))?;
            pick(tree, Case::Miss, UPSTREAMS)
        },
    )?);
    Ok(laws)
}

fn of_bodies(rounds: usize) -> Result<Vec<Law>, Failure> {
    let law = |name: &str| {
        let sample = Sample::ALL.into_iter().find(|sample| sample.name == name);
        let sample = sample.ok_or_else(|| format!("there is no body `{name}`"))?;
        let kind = name.split('/').next().unwrap_or(name);
        Law::new(format!("facts of a body: {kind}"), "KiB", [1, 1_024], |kib| {
            let (body, route) = (sample.of_size(kib << 10), sample.route()?);
            sample.facts(&route, body.as_bytes())?;
            Ok(nanoseconds(rounds, || {
                black_box(sample.facts(&route, black_box(body.as_bytes())).ok());
            }))
        })
    };
    BODIES.into_iter().map(law).collect()
}

/// A publish where one of a hundred upstreams has other models than before.
fn renamed(rounds: usize) -> Result<Law, Failure> {
    Law::new(
        "publish of other models",
        "models of each of 100 upstreams",
        NAMES,
        |models| {
            let lists = [named(models), named(models + 1)];
            let mut board = board_of(trees::gateway(), &lists[0], 100, |place| Case::Miss.report(place))?;
            let spec = UpstreamSpec::new(&*id(0)?.to_string(), "http://127.0.0.1:8080")?;
            let (mut turn, mut now) = (0, Moment::ZERO);
            Ok(nanoseconds(rounds, || {
                turn += 1;
                now = Moment::from_millis(turn);
                let spec = spec.clone().models(lists[turn as usize % 2].clone());
                board.apply(StatusEvent::Upsert(spec), now);
                black_box(board.publish(now));
            }))
        },
    )
}

/// So many models.
fn named(models: usize) -> Models {
    let adapters = (2..models).map(|number| ModelEntry::adapter(format!("adapter-{number}"), "base"));
    let own = [
        ModelEntry::new("base"),
        ModelEntry::adapter("adapter-active", "base"),
    ];
    Models::Listed(own.into_iter().chain(adapters).collect())
}

/// A pick among upstreams with so many models, and with so many adapters that have requests, at each.
fn with_names(rounds: usize, models: usize, adapters: usize) -> Result<f64, Failure> {
    let mut board = board_of(trees::gateway(), &named(models), UPSTREAMS, |place| {
        let mut report = Case::Affinity.report(place);
        if let Some(told) = &mut report.adapters {
            told.max = Some(1 + adapters as u32);
            told.running = (0..adapters)
                .map(|number| format!("adapter-{}", place % 7 + number).into())
                .collect();
            told.running
                .extend(place.is_multiple_of(16).then(|| "adapter-active".into()));
        }
        report
    })?;
    Ok(a_pick(rounds, &board.publish(Moment::ZERO), Case::Affinity) * 1e9)
}

/// The bytes that so many upstreams with so many models hold, to the last one.
fn held(upstreams: usize, models: usize) -> Result<f64, Failure> {
    let mut made = None;
    let counted = measure(|| {
        let report = |place| Case::Miss.report(place);
        let board = board_of(trees::gateway(), &named(models), upstreams, report);
        made = board.ok().map(|mut board| {
            board.publish(Moment::ZERO);
            board
        });
    });
    made.ok_or("no board is made")?;
    Ok(counted.bytes_current as f64)
}

fn nanoseconds(rounds: usize, run: impl FnMut()) -> f64 {
    of_each(rounds, run) * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_is_parted_into_what_is_fixed_and_what_each_adds() {
        let law = Law::new("a pick", "upstreams", [100, 1_100], |size| {
            Ok(50.0 + 2.5 * size as f64)
        })
        .unwrap();
        assert_eq!(law.parts(), [50.0, 2.5]);
        let row = "| a pick | upstreams | 50.0 ns | 2.500 ns | 100 | 300 ns | 1100 | 2800 ns |";
        assert_eq!(table(&[law]).lines().last(), Some(row));
    }

    /// As if it had been measured.
    fn law(what: String) -> Law {
        Law::new(what, "upstreams", [100, 1_100], |size| Ok(size as f64)).unwrap()
    }

    #[test]
    fn what_the_model_goes_by_is_measured_or_an_error() {
        let picks = || {
            TREES
                .into_iter()
                .flat_map(|(tree, _)| Case::ALL.map(|case| law(pick_with(tree, case))))
        };
        let laws: Vec<Law> = picks().chain([law(PUBLISH.to_owned())]).collect();
        let [pick, publish] = modelled(&laws).unwrap();
        assert_eq!([&*pick.what, &*publish.what], ["pick, `gateway`, miss", PUBLISH]);
        let without: Vec<Law> = picks().collect();
        let error = modelled(&without).map(drop).unwrap_err().to_string();
        assert!(error.contains(PUBLISH), "{error}");
        let error = modelled(&laws[laws.len() - 1..])
            .map(drop)
            .unwrap_err()
            .to_string();
        assert!(error.contains("pick, `gateway`, miss"), "{error}");
    }

    #[test]
    fn each_body_that_grows_is_there() {
        for name in BODIES {
            assert!(Sample::ALL.iter().any(|sample| sample.name == name), "{name}");
        }
    }

    #[test]
    fn each_upstream_takes_memory() {
        let [ten, hundred] = [10, 100].map(|upstreams| held(upstreams, 8).unwrap());
        assert!(hundred > 5.0 * ten / 2.0 && ten > 0.0, "{ten} and {hundred}");
    }
}
