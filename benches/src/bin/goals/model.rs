//! What follows for many routers over many upstreams, of which no machine has enough to measure it?
//!
//! Each figure is a formula over what was measured; the formulas stand beside them.

use std::fmt::Write as _;

use paddler_benches::harness::Failure;
use paddler_benches::pages::Page;

use super::growth::{Law, modelled};
use super::program::Polled;

/// Upstreams in all.
const UPSTREAMS: f64 = 100_000.0;

/// Picks a second of which the CPU time is told.
const PICKS: f64 = 1_000.0;

/// Snapshots a second at most: the board's own limit.
const SNAPSHOTS: f64 = 100.0;

/// The CPU time of an agent's word, in seconds, with the snapshots that it brings, and its bytes: the length of a message of one upstream.
/// The time is what `--bin agents -- --rounds 1` says of 500 agents that tell something new, on the machine of the tables in `scaling`.
const WORD: (f64, f64) = (175e-6, 250.0);

/// What was measured.
pub(crate) struct Costs {
    /// Seconds of a pick, and of a publish: what is fixed, and for each upstream.
    pick: [f64; 2],
    publish: [f64; 2],
    /// Seconds of a poll.
    poll: f64,
    /// Bytes: what is fixed, and for each upstream.
    memory: [f64; 2],
}

impl Costs {
    /// # Errors
    /// When something of it was not measured.
    pub(crate) fn of(laws: &[Law], polled: &Polled) -> Result<Self, Failure> {
        let [pick, publish] = modelled(laws)?.map(|law| law.parts().map(|nanoseconds| nanoseconds * 1e-9));
        Ok(Self {
            pick,
            publish,
            poll: polled.each,
            memory: polled.memory,
        })
    }
}

/// A way to have routers over upstreams.
struct Layout {
    name: &'static str,
    /// Upstreams that a router looks at.
    upstreams: f64,
    /// Routers that look at each upstream.
    looked_at_by: f64,
    /// Upstreams of the router before that one; 0: there is none.
    before: f64,
    /// CPU time and bytes of a look, of which there is one a second.
    look: (f64, f64),
}

impl Costs {
    /// A poll, and its bytes.
    fn poll(&self) -> (f64, f64) {
        (self.poll, Page::VLLM_IDLE.body().len() as f64)
    }

    /// One router that polls all upstreams there are.
    fn one(&self) -> [Layout; 4] {
        [("100", 1e2), ("1,000", 1e3), ("10,000", 1e4), ("100,000", 1e5)].map(|(name, upstreams)| Layout {
            name,
            upstreams,
            looked_at_by: 1.0,
            before: 0.0,
            look: self.poll(),
        })
    }

    /// A hundred routers, from what comes of itself to what is possible.
    fn hundred(&self) -> [Layout; 4] {
        let layout = |name, upstreams, looked_at_by, before, look| Layout {
            name,
            upstreams,
            looked_at_by,
            before,
            look,
        };
        [
            layout("all poll all", UPSTREAMS, 100.0, 0.0, self.poll()),
            layout("agents tell all", UPSTREAMS, 100.0, 0.0, WORD),
            layout("each polls 4 %", UPSTREAMS / 25.0, 4.0, 0.0, self.poll()),
            layout("20 before 80", UPSTREAMS / 80.0, 1.0, 80.0, self.poll()),
        ]
    }
}

/// A figure of a layout.
type Figure = fn(&Layout, &Costs) -> f64;

/// What is asked of each, by which formula, in which unit. `n`: upstreams of a router; `k`: routers of an upstream.
const FIGURES: [(&str, &str, &str, Figure); 12] = [
    ("upstreams of a router", "n", "", |layout, _| layout.upstreams),
    ("looks at an upstream", "k", "/s", |layout, _| layout.looked_at_by),
    (
        "bytes from an upstream",
        "k x bytes of a look",
        "MB/s",
        |layout, _| layout.looked_at_by * layout.look.1 / 1e6,
    ),
    ("looks of a router", "n", "/s", |layout, _| layout.upstreams),
    ("CPU of looks", "n x CPU of a look", "cores", |layout, _| {
        layout.upstreams * layout.look.0
    }),
    (
        "bytes into a router",
        "n x bytes of a look",
        "MB/s",
        |layout, _| layout.upstreams * layout.look.1 / 1e6,
    ),
    ("a snapshot", "fixed + n x each", "ms", |layout, costs| {
        1e3 * at(costs.publish, layout.upstreams)
    }),
    (
        "snapshots",
        "1 / a snapshot, at most 100",
        "/s",
        |layout, costs| (1.0 / at(costs.publish, layout.upstreams)).min(SNAPSHOTS),
    ),
    (
        "CPU of snapshots",
        "snapshots x a snapshot",
        "cores",
        |layout, costs| (SNAPSHOTS * at(costs.publish, layout.upstreams)).min(1.0),
    ),
    ("memory", "fixed + n x each", "MiB", |layout, costs| {
        at(costs.memory, layout.upstreams) / f64::from(1 << 20)
    }),
    (
        "a pick (`gateway`, miss), at all levels",
        "fixed + n x each",
        "µs",
        |layout, costs| 1e6 * picks(layout, costs),
    ),
    (
        "CPU of 1,000 picks a second",
        "1,000 x a pick",
        "cores",
        |layout, costs| PICKS * at(costs.pick, layout.upstreams),
    ),
];

fn at([fixed, each]: [f64; 2], upstreams: f64) -> f64 {
    fixed + each * upstreams
}

fn picks(layout: &Layout, costs: &Costs) -> f64 {
    let before = if layout.before > 0.0 {
        at(costs.pick, layout.before)
    } else {
        0.0
    };
    before + at(costs.pick, layout.upstreams)
}

/// What follows for one router, and for a hundred, in Markdown.
pub(crate) fn tables(costs: &Costs) -> String {
    let one = table("one router, by upstreams", &costs.one(), costs);
    let hundred = table("100 routers, 100,000 upstreams", &costs.hundred(), costs);
    format!("{one}\n{hundred}")
}

fn table(title: &str, layouts: &[Layout; 4], costs: &Costs) -> String {
    let names = layouts.each_ref().map(|layout| layout.name).join(" | ");
    let mut table = format!("| {title} | formula | {names} |\n|---|---|---:|---:|---:|---:|\n");
    for (what, formula, unit, figure) in FIGURES {
        let cells = layouts
            .each_ref()
            .map(|layout| number(figure(layout, costs), unit));
        writeln!(table, "| {what} | {formula} | {} |", cells.join(" | ")).ok();
    }
    table
}

fn number(figure: f64, unit: &str) -> String {
    let decimals = if figure >= 100.0 || unit.is_empty() { 0 } else { 2 };
    format!("{figure:.decimals$} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: Costs = Costs {
        pick: [1e-6, 10e-9],
        publish: [0.0, 400e-9],
        poll: 100e-6,
        memory: [1_048_576.0, 10_240.0],
    };

    #[test]
    fn each_figure_follows_from_what_was_measured() {
        let table = tables(&COSTS);
        for row in [
            "| looks at an upstream | k | 100 /s | 100 /s | 4.00 /s | 1.00 /s |",
            "| CPU of looks | n x CPU of a look | 10.00 cores | 17.50 cores | 0.40 cores | 0.12 cores |",
            "| a snapshot | fixed + n x each | 40.00 ms | 40.00 ms | 1.60 ms | 0.50 ms |",
            "| snapshots | 1 / a snapshot, at most 100 | 25.00 /s | 25.00 /s | 100 /s | 100 /s |",
            "| memory | fixed + n x each | 978 MiB | 978 MiB | 40.06 MiB | 13.21 MiB |",
            "| memory | fixed + n x each | 1.98 MiB | 10.77 MiB | 98.66 MiB | 978 MiB |",
            "| a pick (`gateway`, miss), at all levels | fixed + n x each | 1001 µs | 1001 µs | 41.00 µs | 15.30 µs |",
        ] {
            assert!(table.contains(row), "{row} is not in\n{table}");
        }
    }
}
