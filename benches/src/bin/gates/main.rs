//! Has what runs for every request become more work than it was?
//!
//! ```sh
//! cargo run --release -p paddler-benches --bin gates                # compare with gates.json; fails where it is more
//! cargo run --release -p paddler-benches --bin gates -- --renew     # write gates.json anew, and show what has changed
//! cargo run --release -p paddler-benches --bin gates -- --only proxy/   # count these cases alone
//! ```
//!
//! Instructions are counted by valgrind, which has to be installed, so that a busy machine counts the same; allocations by this
//! program. A case fails with over 5 % more of either than in `gates.json`, and with over 5 % less until that is written down; a
//! pick fails with any allocation. Counts hold for one
//! compiler, kind of machine and `Cargo.lock`: with others than those in `gates.json` the check fails until it is renewed. On
//! another kind of processor instructions are shown and not judged, since libraries go other ways there.
//!
//! - `pick/<tree>/<affinity, miss or shed>/<upstreams>`: as in the bench `scheduling`; `reserve`: with a lease led to its end;
//!   `reserve/rooms`: with upstreams that are routers, and have room by model.
//! - `facts/<body>`: a body is scanned and its facts are made.
//! - `status/<engine>`: what an engine says about itself is read; `status/told/<upstreams>`: another router asks how they are.
//!   `publish/<upstreams>`: one upstream's report comes into force.
//! - `queue/<waiting>`: somebody comes in where so many wait, and leaves.
//! - `proxy/chat`: a small chat from its client to its engine and back, through all of the router, over TCP; `proxy/event`: an
//!   event of a stream; `proxy/event_counted`: one that is read for its tokens; `proxy/ruled`: a chat whose model may be served by
//!   another, and is not; `proxy/falls_back`: one that is. What the system does for it is not counted.

mod callgrind;
mod cases;
mod proxied;

use std::collections::BTreeMap;
use std::process::ExitCode;

use allocation_counter::measure;
use clap::Parser;
use paddler_benches::baseline::{Baseline, Count, Key, file, processor};
use paddler_benches::harness::Failure;

use cases::{Case, all};

/// Checks that what runs for every request has not become more work.
#[derive(Debug, Parser)]
struct Arguments {
    /// Write what is counted to gates.json, in place of comparing with it.
    #[arg(long)]
    renew: bool,
    /// Count the cases alone whose names contain this, show them, and judge nothing.
    #[arg(long, conflicts_with = "renew")]
    only: Option<String>,
    /// Run the cases, to be counted by callgrind.
    #[arg(long, hide = true)]
    counted: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let only = arguments.only.as_deref();
    let result = if arguments.counted {
        callgrind::run_counted(named(only))
    } else if only.is_some() {
        show(only)
    } else {
        check(arguments.renew)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gates: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The cases whose names contain this.
fn named(only: Option<&str>) -> Vec<Case> {
    let wanted = |case: &Case| only.is_none_or(|only| case.name.contains(only));
    all().into_iter().filter(wanted).collect()
}

/// How often what is counted allocates; rounded up where that is a fault by itself.
fn allocations(case: &Case) -> Result<u64, Failure> {
    let mut run = (case.make)()?;
    // Scratch memory grows the first time.
    run();
    let counted = measure(|| (0..case.runs).for_each(|_| run())).count_total;
    let all = case.all();
    let up = if case.never_allocates { all - 1 } else { all / 2 };
    Ok((counted + up) / all)
}

/// What is wrong with so many allocations by themselves.
fn fault(case: &Case, allocations: u64) -> Option<String> {
    let wrong = case.never_allocates && allocations > 0;
    wrong.then(|| format!("{}: {allocations} allocations, and there must be none", case.name))
}

/// What each of the cases takes whose names contain this.
fn count(only: Option<&str>) -> Result<BTreeMap<String, Count>, Failure> {
    let (cases, instructions) = (named(only), callgrind::count(only)?);
    if cases.len() != instructions.len() {
        let (cases, counts) = (cases.len(), instructions.len());
        return Err(format!("{cases} cases, and callgrind has counted {counts}").into());
    }
    let mut counts = BTreeMap::new();
    for (case, instructions) in cases.iter().zip(instructions) {
        let count = Count {
            instructions: instructions / case.all(),
            allocations: allocations(case)?,
        };
        counts.insert(case.name.clone(), count);
    }
    Ok(counts)
}

/// Counts some, beside what is stored, whatever build that is for.
fn show(only: Option<&str>) -> Result<(), Failure> {
    if named(only).is_empty() {
        let all: Vec<_> = all().into_iter().map(|case| case.name).collect();
        return Err(format!("no case has that in its name; there are:\n{}", all.join("\n")).into());
    }
    print!("{}", Baseline::read(&file())?.compared_with(&count(only)?));
    Ok(())
}

fn check(renew: bool) -> Result<(), Failure> {
    let key = Key::of_this_build()?;
    let stored = Baseline::read(&file())?;
    // Before anything takes its time.
    if !renew {
        stored.is_for(&key)?;
    }
    let counts = count(None)?;
    let never: Vec<_> = all()
        .iter()
        .filter_map(|case| fault(case, counts.get(&case.name)?.allocations))
        .collect();
    let found = Baseline {
        key,
        processor: processor(),
        cases: counts,
    };
    print!("{}", stored.compared_with(&found.cases));
    if !renew && !stored.is_of_this_kind(&found) {
        println!(
            "counted on another kind of processor ({}) than gates.json ({}): allocations are judged, instructions are not",
            found.processor, stored.processor
        );
    }
    if !never.is_empty() {
        return Err(never.join("\n").into());
    }
    if !renew {
        return stored.judge(&found);
    }
    found.write(&file())?;
    println!("written to {}", file().display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_runs_and_allocates_only_where_it_may() {
        // The largest take their time in a debug build, and show nothing more.
        for case in all().into_iter().filter(|case| !case.name.ends_with("/10000")) {
            let allocations = allocations(&case).unwrap();
            assert_eq!(fault(&case, allocations), None);
        }
    }

    #[test]
    fn one_allocation_in_many_picks_is_seen() {
        let made = || -> Result<cases::Run, Failure> {
            let mut runs = 0;
            Ok(Box::new(move || {
                runs += 1;
                drop((runs == 3).then(|| std::hint::black_box(Box::new(runs))));
            }))
        };
        let case = Case {
            name: "pick".to_owned(),
            runs: 8,
            times: 1,
            never_allocates: true,
            make: Box::new(made),
        };
        let told = fault(&case, allocations(&case).unwrap());
        assert_eq!(
            told.as_deref(),
            Some("pick: 1 allocations, and there must be none")
        );
    }
}
