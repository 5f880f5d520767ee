//! What was to be reached, what was, and how is it written?

use std::fmt::Write as _;

/// What a figure should be, and its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Goal {
    bound: Bound,
    unit: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Nothing is asked of it.
    None,
}

impl Goal {
    pub(crate) const fn at_most(most: f64, unit: &'static str) -> Self {
        let bound = Bound::AtMost(most);
        Self { bound, unit }
    }

    pub(crate) const fn at_least(least: f64, unit: &'static str) -> Self {
        let bound = Bound::AtLeast(least);
        Self { bound, unit }
    }

    /// Nothing is asked of such a figure.
    pub(crate) const fn none(unit: &'static str) -> Self {
        let bound = Bound::None;
        Self { bound, unit }
    }
}

/// A figure beside its goal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) goal: Goal,
    /// In the goal's unit.
    pub(crate) reached: f64,
}

impl Row {
    pub(crate) fn new(what: impl Into<String>, goal: Goal, reached: f64) -> Self {
        Self {
            what: what.into(),
            goal,
            reached,
        }
    }

    /// The goal, and what is to be said of it.
    fn judged(&self) -> (String, String) {
        let (sign, bound, met) = match self.goal.bound {
            Bound::None => return (String::new(), String::new()),
            Bound::AtMost(bound) => ('≤', bound, self.reached <= bound),
            Bound::AtLeast(bound) => ('≥', bound, self.reached >= bound),
        };
        let goal = format!("{sign} {}", with_unit(bound, self.goal.unit));
        let judged = if met {
            "met".to_owned()
        } else if self.reached.is_nan() {
            "not measured".to_owned()
        } else {
            format!("missed: {} of it", with_unit(100.0 * self.reached / bound, "%"))
        };
        (goal, judged)
    }
}

/// All of them, in Markdown.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = "| what | goal | reached | met or missed |\n|---|---:|---:|---|\n".to_owned();
    for row in rows {
        let (goal, judged) = row.judged();
        let reached = with_unit(row.reached, row.goal.unit);
        writeln!(table, "| {} | {goal} | {reached} | {judged} |", row.what).ok();
    }
    table
}

fn with_unit(figure: f64, unit: &str) -> String {
    let decimals = match figure.abs() {
        _ if figure.fract() == 0.0 => 0,
        small if small < 10.0 => 2,
        middle if middle < 100.0 => 1,
        _ => 0,
    };
    let space = if unit.is_empty() { "" } else { " " };
    format!("{figure:.decimals$}{space}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_goal_is_held_against_what_was_reached() {
        let rows = [
            Row::new("a pick", Goal::at_most(150.0, "ns"), 741.4),
            Row::new("a scan", Goal::at_least(8.0, "GB/s"), 8.25),
            Row::new("a ratio", Goal::at_least(0.5, ""), 0.25),
            Row::new("crates", Goal::at_most(45.0, ""), 45.0),
            Row::new("another", Goal::none("µs"), 17.33),
            Row::new("lost", Goal::at_most(1.0, "ms"), f64::NAN),
        ];
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| a pick | ≤ 150 ns | 741 ns | missed: 494 % of it |",
                "| a scan | ≥ 8 GB/s | 8.25 GB/s | met |",
                "| a ratio | ≥ 0.50 | 0.25 | missed: 50 % of it |",
                "| crates | ≤ 45 | 45 | met |",
                "| another |  | 17.3 µs |  |",
                "| lost | ≤ 1 ms | NaN ms | not measured |",
            ]
        );
    }
}
