//! How is it told why a walk ended as it did?

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::explain::{Explanation, Step};
use super::tree::Tree;
use crate::request::RequestFacts;
use crate::upstream::UpstreamId;

/// How much of why a request gets its place is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Detail {
    /// Nothing, which costs nothing.
    #[default]
    Nothing,
    /// The way through the tree: some allocations for each pick.
    Why,
    /// All that went into it, too, so that it can be made again: a copy of our own counters, of as many as there are upstreams.
    Record,
}

/// What an [`Explanation`] says, as data and with the titles of the nodes: for answers, headers and people who ask. Nothing in
/// it borrows from the snapshot, so it may be kept. What is not known, or is none, is left out where it is written.
///
/// Shown, it is a table:
///
/// ```text
/// node  what it does           left
///    1  require model          1 of 2    without engine-2
///    2  require slot           1 of 1
///    3  least in_flight_share
/// picked: engine-1
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explained {
    /// The model that the request is for, where that is told ([`of`](Self::of)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The name that was asked for, where that stands for the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Arc<str>>,
    /// The model that it was for, where this one serves it instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead_of: Option<Arc<str>>,
    /// `picked`, or the class of the end: `never`, `later` or `shed`.
    pub outcome: &'static str,
    /// Why nobody was picked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The node that found nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// What the host's own said that could not judge, where that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Who was picked, the best first.
    pub picked: Vec<UpstreamId>,
    /// Who the leaf could choose among: as many as are named.
    pub survivors: Vec<UpstreamId>,
    /// What was walked, in order. The first is the root, once for each try.
    pub nodes: Vec<ExplainedNode>,
    /// All of it in a line.
    pub summary: String,
    /// Where it would go instead, where nobody was picked: the models that it [falls back](crate::request::Fallback) to, up to the
    /// first that has a place. When those are asked, its patience says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<Self>,
}

/// A node on the way.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExplainedNode {
    /// Its number in the order of the tree.
    pub node: u32,
    /// What it does, in a line.
    pub title: String,
    /// What its filter did, if it has one.
    #[serde(flatten)]
    pub step: Option<Step>,
    /// It only holds others, and does nothing itself.
    #[serde(skip)]
    is_list: bool,
}

impl Explained {
    /// `most`: how many upstreams each list names.
    pub(super) fn new(why: &Explanation, tree: &Tree, most: usize) -> Self {
        let mut steps = why.steps.iter().peekable();
        let nodes = why.path.iter().map(|node| ExplainedNode {
            node: node.get(),
            title: tree.title(*node).unwrap_or("?").to_owned(),
            step: steps.next_if(|step| step.node == *node).map(|step| Step {
                removed: step.removed.iter().take(most).cloned().collect(),
                error: step.error.clone(),
                ..*step
            }),
            is_list: tree.is_list(*node),
        });
        let ending = why.ending.as_ref();
        let mut explained = Self {
            model: None,
            asked: None,
            instead_of: None,
            outcome: ending.map_or("picked", |ending| ending.class.as_str()),
            reason: ending.map(|ending| ending.reason.to_string()),
            node: ending.map(|ending| ending.node.get()),
            error: ending.and_then(|ending| Some(ending.error.as_ref()?.to_string())),
            picked: why.picked.clone(),
            survivors: why.survivors.iter().take(most).cloned().collect(),
            nodes: nodes.collect(),
            summary: String::new(),
            fallback: Vec::new(),
        };
        explained.summary = explained.line();
        explained
    }

    /// Says for which model it was, and by which name that was asked for.
    #[must_use]
    pub fn of(mut self, facts: &RequestFacts) -> Self {
        self.model.clone_from(&facts.model);
        self.asked.clone_from(&facts.asked);
        self.instead_of.clone_from(&facts.instead_of);
        self
    }

    /// Adds where these models would serve it instead, of which each is walked as `walk` does, until one has a place.
    ///
    /// # Errors
    /// What `walk` says.
    pub fn or_else<E>(
        mut self,
        facts: &RequestFacts,
        models: &[Arc<str>],
        mut walk: impl FnMut(&RequestFacts) -> Result<Self, E>,
    ) -> Result<Self, E> {
        let mut found = !self.picked.is_empty();
        for model in models {
            if found {
                break;
            }
            let facts = facts.instead(model);
            let why = walk(&facts)?.of(&facts);
            found = !why.picked.is_empty();
            self.fallback.push(why);
        }
        Ok(self)
    }

    fn line(&self) -> String {
        let mut line = String::new();
        for ExplainedNode {
            node,
            title,
            step,
            is_list,
        } in &self.nodes
        {
            if *node == 0 && !line.is_empty() {
                line.push_str("; lost to another request, again: ");
            }
            if *is_list {
                continue;
            }
            if !line.is_empty() && !line.ends_with(' ') {
                line.push_str(", ");
            }
            line.push_str(title);
            if let Some(Step {
                before, after, error, ..
            }) = step
            {
                line.push_str(&format!(" {after} of {before}"));
                line.extend(error.iter().map(|error| format!(" ({error})")));
            }
        }
        if self.reason.is_some() || !self.picked.is_empty() {
            line.push_str(&format!(" -> {}", self.end()));
        }
        line
    }

    /// Who was picked, or why nobody.
    fn end(&self) -> String {
        let Some(reason) = &self.reason else {
            return names(&self.picked);
        };
        let mut end = format!("{}: {reason}", self.outcome);
        // A filter has said it where it stands; a leaf makes no step.
        let has_said = |step: &Step| step.error.is_some();
        let at_a_step =
            |node: &ExplainedNode| Some(node.node) == self.node && node.step.as_ref().is_some_and(has_said);
        if let Some(error) = &self.error
            && !self.nodes.iter().any(at_a_step)
        {
            end.push_str(&format!(" ({error})"));
        }
        end
    }
}

fn names(ids: &[UpstreamId]) -> String {
    ids.iter().map(UpstreamId::as_str).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = || self.nodes.iter().filter(|node| !node.is_list);
        let widest = nodes()
            .map(|node| node.title.chars().count())
            .max()
            .unwrap_or(0)
            .max(12);
        if let (Some(asked), Some(model)) = (&self.asked, &self.model) {
            writeln!(f, "{asked} stands for {model}")?;
        }
        if let (Some(own), Some(model)) = (&self.instead_of, &self.model) {
            writeln!(f, "{model} instead of {own}")?;
        }
        writeln!(f, "node  {:widest$}  left", "what it does")?;
        for ExplainedNode {
            node, title, step, ..
        } in nodes()
        {
            match step {
                None => writeln!(f, "{node:4}  {title}")?,
                Some(step) => writeln!(f, "{node:4}  {title:widest$}  {step}")?,
            }
        }
        let picked = if self.reason.is_none() { "picked: " } else { "" };
        write!(f, "{picked}{}", self.end())?;
        self.fallback
            .iter()
            .try_for_each(|other| write!(f, "\n\n{other}"))
    }
}

/// How many of those named in a table's line.
const NAMED: usize = 5;

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = format!("{} of {}", self.after, self.before);
        if self.removed.is_empty() && self.error.is_none() {
            return f.write_str(&left);
        }
        write!(f, "{left:<9}")?;
        let gone = self.before.saturating_sub(self.after);
        let named: Vec<_> = self
            .removed
            .iter()
            .take(NAMED)
            .map(|(id, value)| match value {
                Some(value) => format!("{id} ({value})"),
                None => id.to_string(),
            })
            .collect();
        if !named.is_empty() {
            write!(f, " without {}", named.join(", "))?;
            if gone > named.len() {
                write!(f, " and {} more", gone - named.len())?;
            }
        }
        match &self.error {
            Some(error) => write!(f, " {error}"),
            None => Ok(()),
        }
    }
}
