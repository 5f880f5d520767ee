//! What runs for every request, and for every status?

use std::hint::black_box;

use http::{Request, Response, StatusCode};
use paddler_core::forward::{Body, Router, RouterOptions};
use paddler_core::schedule::{Ask, Outcome, Scratch, Tree, trees};
use paddler_core::{Clock, Moment};
use tokio::runtime::Builder;

use paddler_benches::bodies::Sample;
use paddler_benches::harness::Failure;
use paddler_benches::pages::Page;
use paddler_benches::pools::{self, Changing, TREES, Waiting};

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

const UPSTREAMS: [usize; 4] = [1, 100, 1_000, 10_000];

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
            reserve(pools::pool(tree(), pools::Case::Affinity, 1_000)?)
        }));
    }
    all.push(Case::new("reserve/rooms/100", 8, true, || {
        reserve(pools::routers(trees::gateway(), 100)?)
    }));
    for sample in Sample::ALL {
        let runs = if sample.bytes < 1 << 20 { 4 } else { 2 };
        all.push(Case::new(
            format!("facts/{}", sample.name),
            runs,
            false,
            move || facts(sample),
        ));
    }
    for page in Page::ALL {
        let read = move || -> Result<Run, Failure> {
            Ok(Box::new(move || {
                black_box(page.read());
            }))
        };
        all.push(Case::new(format!("status/{}", page.name), 4, false, read));
    }
    all.push(Case::new("status/told/100", 4, false, || told(100)));
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
    for (name, work) in Work::ALL {
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

fn reserve((snapshot, leases): pools::Pool) -> Result<Run, Failure> {
    let (mut scratch, mut seed) = (Scratch::default(), 0);
    let mut reserve = move || {
        seed += 1;
        let facts = pools::Case::Affinity.facts();
        black_box(&leases);
        let ask = Ask::new(&facts, Moment::ZERO, seed);
        let mut lease = snapshot.reserve(&ask, &mut scratch, &mut ()).ok()?;
        lease.sent();
        lease.first_byte();
        lease.complete();
        Some(())
    };
    reserve().ok_or("there is no place")?;
    Ok(Box::new(move || {
        black_box(reserve());
    }))
}

fn facts(sample: Sample) -> Result<Run, Failure> {
    let (body, route) = (sample.body(), sample.route()?);
    sample.facts(&route, body.as_bytes())?;
    Ok(Box::new(move || {
        black_box(sample.facts(&route, body.as_bytes()).ok());
    }))
}

/// A router that is asked by another how all of its upstreams are.
fn told(upstreams: usize) -> Result<Run, Failure> {
    let mut board = pools::board(trees::gateway(), pools::Case::Miss, upstreams)?;
    board.publish(Moment::ZERO);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let router = {
        let _within = runtime.enter();
        Router::new(board.published(), Clock::new(), RouterOptions::default())
    };
    let ask = move || -> Result<Response<Body>, Failure> {
        let request = Request::get("/paddler/v1/status").body(Body::empty())?;
        // The board goes with the router.
        black_box(&board);
        Ok(runtime.block_on(router.handle(request)))
    };
    let status = ask()?.status();
    if status != StatusCode::OK {
        return Err(format!("it answers {status}").into());
    }
    Ok(Box::new(move || {
        black_box(ask().ok());
    }))
}

fn publish(upstreams: usize) -> Result<Run, Failure> {
    let mut changing = Changing::new(upstreams)?;
    Ok(Box::new(move || {
        black_box(changing.publish());
    }))
}

fn queue(waiting: usize) -> Result<Run, Failure> {
    let mut waiting = Waiting::new(waiting)?;
    Ok(Box::new(move || waiting.come_and_go()))
}
