//! What runs for every request, and for every status?

use std::hint::black_box;
use std::time::Duration;

use paddler_core::Moment;
use paddler_core::queue::{QueueLimits, Told, Tried, WaitQueue};
use paddler_core::request::{RequestFacts, Route, ScanLimits, Scanner};
use paddler_core::schedule::{Ask, Outcome, Scratch, Tree, trees};
use paddler_core::source::vllm::{self, VllmNames};
use paddler_core::status::{Report, StatusEvent};

use paddler_benches::bodies::Sample;
use paddler_benches::harness::Failure;
use paddler_benches::pools;

use super::proxied::{self, Work};

/// One thing that is counted.
pub(crate) struct Case {
    pub(crate) name: String,
    /// How often it runs while it is counted.
    pub(crate) runs: u32,
    /// How often a run does what is counted.
    pub(crate) times: u32,
    /// That it allocates is a fault by itself.
    pub(crate) never_allocates: bool,
    /// Makes all that it needs.
    pub(crate) make: Box<dyn Fn() -> Result<Run, Failure>>,
}

/// What is counted.
pub(crate) type Run = Box<dyn FnMut()>;

type MakeTree = fn() -> Tree;

const TREES: [(&str, MakeTree); 3] = [
    ("seed", trees::seed),
    ("balancer", trees::balancer),
    ("gateway", trees::gateway),
];
const UPSTREAMS: [usize; 4] = [1, 100, 1_000, 10_000];

/// A page of a real vLLM with adapters, below the head it came with.
const PAGE: &str = include_str!("../../../../paddler-core/tests/samples/vllm/metrics_busy_lora.http");

/// All cases, in the order in which they are counted.
pub(crate) fn all() -> Vec<Case> {
    let mut all = Vec::new();
    for (name, tree) in TREES {
        for case in pools::Case::ALL {
            for upstreams in UPSTREAMS {
                let title = format!("pick/{name}/{}/{upstreams}", case.name());
                all.push(Case::new(title, 8, true, move || pick(tree(), case, upstreams)));
            }
        }
        all.push(Case::new(format!("reserve/{name}/1000"), 8, true, move || {
            reserve(tree())
        }));
    }
    for sample in Sample::ALL {
        let runs = if sample.bytes < 1 << 20 { 4 } else { 2 };
        all.push(Case::new(
            format!("facts/{}", sample.name),
            runs,
            false,
            move || facts(sample.body()),
        ));
    }
    all.push(Case::new("status/vllm", 4, false, || Ok(status())));
    for upstreams in [100, 1_000, 10_000] {
        all.push(Case::new(format!("publish/{upstreams}"), 4, false, move || {
            publish(upstreams)
        }));
    }
    for waiting in [0, 1_000, 10_000] {
        all.push(Case::new(format!("queue/{waiting}"), 8, false, move || {
            queue(waiting)
        }));
    }
    for (name, work) in [("proxy/chat", Work::Chat), ("proxy/event", Work::Event)] {
        all.push(Case {
            times: proxied::MANY,
            ..Case::new(name, 1, false, move || proxied::run(work))
        });
    }
    all
}

impl Case {
    /// How often what is counted is done while it is counted.
    pub(crate) fn all(&self) -> u64 {
        u64::from(self.runs) * u64::from(self.times)
    }

    fn new(
        name: impl Into<String>,
        runs: u32,
        never_allocates: bool,
        make: impl Fn() -> Result<Run, Failure> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            runs,
            times: 1,
            never_allocates,
            make: Box::new(make),
        }
    }
}

fn pick(tree: Tree, case: pools::Case, upstreams: usize) -> Result<Run, Failure> {
    let (snapshot, leases) = pools::pool(tree, case, upstreams)?;
    let (mut scratch, mut seed) = (Scratch::default(), 0);
    let mut pick = move || {
        seed += 1;
        let facts = case.facts();
        // They stay open meanwhile.
        black_box(&leases);
        snapshot.pick(&Ask::new(&facts, Moment::ZERO, seed), &mut scratch, &mut ())
    };
    if matches!(pick(), Outcome::Picked(_)) == (case == pools::Case::Shed) {
        return Err(format!("{}: not what it is called", case.name()).into());
    }
    Ok(Box::new(move || {
        drop(black_box(pick()));
    }))
}

fn reserve(tree: Tree) -> Result<Run, Failure> {
    let (snapshot, leases) = pools::pool(tree, pools::Case::Affinity, 1_000)?;
    let (mut scratch, mut seed) = (Scratch::default(), 0);
    Ok(Box::new(move || {
        seed += 1;
        let facts = pools::Case::Affinity.facts();
        black_box(&leases);
        let reserved = snapshot.reserve(&Ask::new(&facts, Moment::ZERO, seed), &mut scratch, &mut ());
        if let Ok(mut lease) = reserved {
            lease.sent();
            lease.first_byte();
            lease.complete();
        }
    }))
}

fn facts(body: String) -> Result<Run, Failure> {
    let path = if body.contains("\"prompt\"") {
        "/v1/completions"
    } else {
        "/v1/chat/completions"
    };
    let route = Route::of("POST", path).map_err(|error| error.to_string())?;
    let read = move || {
        let scanned = Scanner::scan(body.as_bytes(), ScanLimits::default()).ok()?;
        RequestFacts::from_scan(&route, &scanned, Moment::ZERO, 1).ok()
    };
    let model = read().and_then(|facts| facts.model);
    if model.as_deref() != Some("base") {
        return Err("the body is not read".into());
    }
    Ok(Box::new(move || {
        black_box(read());
    }))
}

fn status() -> Run {
    let page = PAGE.find("# HELP").map_or(PAGE, |start| &PAGE[start..]);
    let names = VllmNames::default();
    Box::new(move || {
        let mut report = Report::new();
        vllm::read_metrics(200, page.as_bytes(), &names, &mut report);
        black_box(report);
    })
}

fn publish(upstreams: usize) -> Result<Run, Failure> {
    let mut board = pools::board(trees::gateway(), pools::Case::Miss, upstreams)?;
    let ids = (0..upstreams).map(pools::id).collect::<Result<Vec<_>, _>>()?;
    let mut turn = 0;
    Ok(Box::new(move || {
        turn += 1;
        let (id, report) = (ids[turn % upstreams].clone(), pools::Case::Miss.report(turn));
        let event = StatusEvent::Report {
            id,
            report,
            sample: None,
        };
        board.apply(event, Moment::from_millis(turn as u64));
        black_box(board.publish(Moment::from_millis(turn as u64)));
    }))
}

fn queue(waiting: usize) -> Result<Run, Failure> {
    let limits = QueueLimits::new(waiting + 1, u64::MAX, Duration::from_secs(1_000));
    let mut queue = WaitQueue::new(limits);
    let facts = |number: usize| {
        let mut facts = RequestFacts::new();
        facts.model = Some(format!("model-{}", number % 10).into());
        facts.tenant = Some(format!("tenant-{}", number / 10 % 10).into());
        facts
    };
    for number in 0..waiting {
        let pushed = queue.push(facts(number), Tried::default(), Told::default(), Moment::ZERO, ());
        pushed.map_err(|_| "there is no room")?;
    }
    let asked = facts(0);
    Ok(Box::new(move || {
        let now = Moment::from_millis(1);
        if let Ok(pushed) = queue.push(asked.clone(), Tried::default(), Told::default(), now, ()) {
            black_box(queue.remove(pushed.ticket, now));
        }
    }))
}
