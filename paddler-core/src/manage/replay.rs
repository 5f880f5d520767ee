//! What would another tree have done with decisions that were written down?
//!
//! Each decision is made again: the same request, the same statuses and counters, the same draws. What cannot be known is what
//! would have come of it: with other decisions, the counters of the later ones would have been others too.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::tape::{Line, Written};
use crate::schedule::{Explanation, Outcome, Scratch, Tree};
use crate::status::{Snapshot, SnapshotRecord};
use crate::upstream::UpstreamId;

/// How many pairs and nodes are told, those with most decisions first.
const TOLD: usize = 20;

/// Makes decisions again, line by line of what a [`Tape`](super::Tape) has written.
///
/// ```
/// use paddler_core::manage::Replay;
/// use paddler_core::schedule::trees;
///
/// let mut replay = Replay::new(trees::gateway());
/// assert!(replay.line("{}").unwrap_err().to_string().starts_with("it cannot be read"));
/// assert_eq!(replay.replayed().decisions, 0);
/// ```
#[derive(Debug)]
pub struct Replay {
    tree: Arc<Tree>,
    text: String,
    base: Option<SnapshotRecord>,
    /// The same, made again with the other tree; `None` where it has changed since.
    snapshot: Option<Snapshot>,
    /// The tree that made the next ones reads as this one does.
    by_same: bool,
    replayed: Replayed,
    others: BTreeMap<(UpstreamId, Option<UpstreamId>), u64>,
    nodes: BTreeMap<(u32, String), u64>,
    unplaced: BTreeMap<String, u64>,
}

/// What has come of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Replayed {
    /// How many decisions there were.
    pub decisions: u64,
    /// How many would have gone to the same upstream.
    pub same: u64,
    /// How many would have found nobody.
    pub nobody: u64,
    /// How many were made by a tree that reads as this one does.
    pub same_tree: u64,
    /// Those that would have gone elsewhere: from where to where, and how many. Twenty at most.
    pub elsewhere: Vec<Elsewhere>,
    /// At which node those left the upstream that they went to. Twenty at most.
    pub nodes: Vec<Parted>,
    /// Why those would have found nobody, with how many.
    pub reasons: BTreeMap<String, u64>,
}

/// Decisions that would have gone elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Elsewhere {
    /// Where they went.
    pub from: UpstreamId,
    /// Where they would have gone. `None`: nowhere.
    pub to: Option<UpstreamId>,
    /// How many.
    pub decisions: u64,
}

/// A node of the other tree that took out the upstream that was picked, or a leaf that chose another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Parted {
    /// Its number.
    pub node: u32,
    /// What it does.
    pub title: String,
    /// How many decisions.
    pub decisions: u64,
}

/// A line that cannot be read, or stands where it cannot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine(String);

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadLine {}

impl Replay {
    /// By this tree.
    pub fn new(tree: impl Into<Arc<Tree>>) -> Self {
        let tree = tree.into();
        Self {
            text: tree.to_string(),
            tree,
            base: None,
            snapshot: None,
            by_same: false,
            replayed: Replayed::default(),
            others: BTreeMap::new(),
            nodes: BTreeMap::new(),
            unplaced: BTreeMap::new(),
        }
    }

    /// Reads the next line.
    ///
    /// # Errors
    /// What is wrong with it. The next one can be read all the same.
    pub fn line(&mut self, line: &str) -> Result<(), BadLine> {
        let unreadable = |why: &dyn fmt::Display| BadLine(format!("it cannot be read: {why}"));
        match serde_json::from_str(line).map_err(|why| unreadable(&why))? {
            Line::Tree(tree) => self.by_same = tree == self.text,
            Line::Snapshot(record) => (self.base, self.snapshot) = (Some(record), None),
            Line::Change(change) => {
                let base = self.base.as_mut();
                change.apply(base.ok_or(BadLine(
                    "it changes a snapshot, and none stands before it".to_owned(),
                ))?);
                self.snapshot = None;
            }
            Line::Decision(written) => self.decide(&written)?,
        }
        Ok(())
    }

    fn decide(&mut self, written: &Written) -> Result<(), BadLine> {
        let record = &written.record;
        let base = self
            .base
            .as_ref()
            .filter(|base| base.generation == record.generation);
        let base = base
            .ok_or_else(|| BadLine("the snapshot that it was made by does not stand before it".to_owned()))?;
        let snapshot = match self.snapshot.take() {
            Some(snapshot) => snapshot,
            None => Snapshot::from_record(base, self.tree.clone()).map_err(|why| BadLine(why.to_string()))?,
        };
        let mut why = Explanation::default();
        let outcome = snapshot.replay(record, &mut Scratch::default(), &mut why);
        let is = snapshot.ids(&outcome).into_iter().next();
        self.snapshot = Some(snapshot);
        self.count(record.picked.first(), (&outcome, is, &why));
        Ok(())
    }

    fn count(
        &mut self,
        was: Option<&UpstreamId>,
        (outcome, is, why): (&Outcome, Option<UpstreamId>, &Explanation),
    ) {
        self.replayed.decisions += 1;
        self.replayed.same_tree += u64::from(self.by_same);
        if was == is.as_ref() {
            self.replayed.same += 1;
            return;
        }
        if let Some(ending) = outcome.ending() {
            self.replayed.nobody += 1;
            *self
                .unplaced
                .entry(format!("{}: {}", ending.class, ending.reason))
                .or_default() += 1;
        }
        let Some(was) = was else { return };
        *self.others.entry((was.clone(), is)).or_default() += 1;
        let taken_out = why
            .steps
            .iter()
            .find(|step| step.removed.iter().any(|(id, _)| id == was));
        // Who was not taken out stood before the leaf, which has chosen another.
        let node = taken_out.map(|step| step.node).or(why.path.last().copied());
        if let Some(node) = node {
            let title = self.tree.title(node).unwrap_or("?").to_owned();
            *self.nodes.entry((node.get(), title)).or_default() += 1;
        }
    }

    /// What has come of it so far.
    pub fn replayed(&self) -> Replayed {
        let elsewhere = self.others.iter().map(|((from, to), decisions)| Elsewhere {
            from: from.clone(),
            to: to.clone(),
            decisions: *decisions,
        });
        let nodes = self.nodes.iter().map(|((node, title), decisions)| Parted {
            node: *node,
            title: title.clone(),
            decisions: *decisions,
        });
        let (mut elsewhere, mut nodes): (Vec<_>, Vec<_>) = (elsewhere.collect(), nodes.collect());
        elsewhere.sort_by_key(|one| std::cmp::Reverse(one.decisions));
        nodes.sort_by_key(|one| std::cmp::Reverse(one.decisions));
        elsewhere.truncate(TOLD);
        nodes.truncate(TOLD);
        Replayed {
            elsewhere,
            nodes,
            reasons: self.unplaced.clone(),
            ..self.replayed.clone()
        }
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |part: u64| {
            format!(
                "{part} ({:.1} %)",
                100.0 * part as f64 / self.decisions.max(1) as f64
            )
        };
        writeln!(f, "decisions     {}", self.decisions)?;
        writeln!(f, "by this tree  {}", share(self.same_tree))?;
        writeln!(f, "the same      {}", share(self.same))?;
        let elsewhere = self.decisions.saturating_sub(self.same + self.nobody);
        writeln!(f, "elsewhere     {}", share(elsewhere))?;
        write!(f, "nobody        {}", share(self.nobody))?;
        for Elsewhere { from, to, decisions } in &self.elsewhere {
            let to = to.as_ref().map_or("nobody", UpstreamId::as_str);
            write!(f, "\n  {decisions:>8}  {from} -> {to}")?;
        }
        if !self.nodes.is_empty() {
            write!(f, "\nparted at")?;
        }
        for Parted {
            node,
            title,
            decisions,
        } in &self.nodes
        {
            write!(f, "\n  {decisions:>8}  node {node}: {title}")?;
        }
        for (reason, decisions) in &self.reasons {
            write!(f, "\n  {decisions:>8}  {reason}")?;
        }
        Ok(())
    }
}
