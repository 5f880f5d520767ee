//! How does a tree look?
//!
//! As a flow chart: each node that does something is a box, and its arrows lead to what comes after it. Lists are not drawn,
//! they are the arrows. The numbers of boxes are those of [`NodeId`](super::NodeId), as explanations and counters have them.

use std::fmt::{self, Write as _};

use super::node::{Kind, Node};
use super::outline::ways;
use super::tree::Tree;

/// As what a tree is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PictureFormat {
    /// A flow chart of Mermaid, as Markdown pages show it.
    Mermaid,
    /// A directed graph of Graphviz.
    Dot,
}

/// A tree as a flow chart: `Display` gives its text.
///
/// ```
/// use paddler_core::schedule::{PictureFormat, trees};
///
/// let tree = trees::balancer();
/// let chart = tree.picture(PictureFormat::Mermaid).to_string();
/// assert!(chart.starts_with("flowchart TD\n"));
/// assert!(chart.contains(r#"n5["require slot"]"#) && chart.contains("n5 --> n6"));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Picture<'t> {
    tree: &'t Tree,
    format: PictureFormat,
}

impl Tree {
    /// This tree as a flow chart.
    pub fn picture(&self, format: PictureFormat) -> Picture<'_> {
        Picture { tree: self, format }
    }
}

impl fmt::Display for Picture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chart = Chart {
            format: self.format,
            boxes: String::new(),
            arrows: String::new(),
        };
        chart.node(self.tree.root(), Vec::new());
        let Chart { boxes, arrows, .. } = chart;
        match self.format {
            PictureFormat::Mermaid => write!(f, "flowchart TD\n{boxes}{arrows}"),
            PictureFormat::Dot => write!(f, "digraph tree {{\n  node [shape=box]\n{boxes}{arrows}}}\n"),
        }
    }
}

/// The start of an arrow, whose end is whatever comes next: a node's number, and what stands at the arrow.
type Open = (u32, String);

/// What a box looks like.
enum Shape {
    /// It narrows.
    Filter,
    /// There are several ways from here.
    Fork,
    /// It ends the walk.
    End,
}

struct Chart {
    format: PictureFormat,
    boxes: String,
    arrows: String,
}

impl Chart {
    /// Draws a node and all below it, at the end of these arrows. Gives the arrows that lead on from there.
    fn node(&mut self, node: &Node, from: Vec<Open>) -> Vec<Open> {
        let id = node.id.get();
        let shape = match &node.kind {
            Kind::List(nodes) => return nodes.iter().fold(from, |from, node| self.node(node, from)),
            Kind::Require { .. } | Kind::Prefer { .. } => {
                self.draw(node, &Shape::Filter, from);
                return vec![(id, String::new())];
            }
            Kind::Reject { .. }
            | Kind::Least(_)
            | Kind::TwoChoices(_)
            | Kind::Random
            | Kind::Rendezvous(_) => Shape::End,
            Kind::Branch { .. }
            | Kind::Gate { .. }
            | Kind::When { .. }
            | Kind::FirstOf(_)
            | Kind::Split { .. }
            | Kind::ByModel { .. } => Shape::Fork,
        };
        self.draw(node, &shape, from);
        let ends = ways(node)
            .into_iter()
            .map(|(word, way)| self.node(way, vec![(id, word)]));
        ends.flatten().collect()
    }

    fn draw(&mut self, node: &Node, shape: &Shape, from: Vec<Open>) {
        let (id, title) = (node.id.get(), self.text(&node.title()));
        let (boxes, arrows) = (&mut self.boxes, &mut self.arrows);
        let drawn = match (self.format, shape) {
            (PictureFormat::Mermaid, Shape::Filter) => writeln!(boxes, "  n{id}[{title}]"),
            (PictureFormat::Mermaid, Shape::Fork) => writeln!(boxes, "  n{id}{{{title}}}"),
            (PictureFormat::Mermaid, Shape::End) => writeln!(boxes, "  n{id}([{title}])"),
            (PictureFormat::Dot, Shape::Filter) => writeln!(boxes, "  n{id} [label={title}]"),
            (PictureFormat::Dot, Shape::Fork) => writeln!(boxes, "  n{id} [label={title}, shape=diamond]"),
            (PictureFormat::Dot, Shape::End) => writeln!(boxes, "  n{id} [label={title}, shape=oval]"),
        };
        let drawn = from.into_iter().fold(drawn, |drawn, (start, word)| {
            let word = match word.as_str() {
                "" => None,
                word => Some(text(self.format, word)),
            };
            drawn.and(match (self.format, word) {
                (PictureFormat::Mermaid, None) => writeln!(arrows, "  n{start} --> n{id}"),
                (PictureFormat::Mermaid, Some(word)) => writeln!(arrows, "  n{start} -->|{word}| n{id}"),
                (PictureFormat::Dot, None) => writeln!(arrows, "  n{start} -> n{id}"),
                (PictureFormat::Dot, Some(word)) => writeln!(arrows, "  n{start} -> n{id} [label={word}]"),
            })
        });
        debug_assert!(drawn.is_ok(), "writing to a string does not fail");
    }

    fn text(&self, text: &str) -> String {
        self::text(self.format, text)
    }
}

/// In quotes. Names of models and reasons are other people's: what ends a text or begins markup in it is written otherwise.
fn text(format: PictureFormat, text: &str) -> String {
    let mut quoted = String::from('"');
    for each in text.chars() {
        match (format, each) {
            (_, control) if control.is_control() => quoted.push(' '),
            (PictureFormat::Mermaid, '"' | '#' | '<' | '>' | '&' | ';' | '`' | '\\') => {
                quoted.push_str(&format!("#{};", u32::from(each)));
            }
            (PictureFormat::Dot, '"' | '\\') => quoted.extend(['\\', each]),
            _ => quoted.push(each),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::schedule::filters::{model, slot};
    use crate::schedule::{Alternative, Class, Condition, Gate, Key, Signals, costs, trees};

    fn lines(tree: &Tree, format: PictureFormat) -> Vec<String> {
        let picture = tree.picture(format).to_string();
        picture.lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn lists_are_arrows_and_ways_that_go_on_meet_again() {
        let both = Node::when(Condition::Adapter, Node::prefer(model()), Node::list([]));
        let root = Node::list([Node::require(slot()), both, Node::random()]);
        let tree = Tree::new(Signals::Reported, root).unwrap();
        let expected = [
            "flowchart TD",
            "n1[\"require slot\"]",
            "n2{\"when adapter\"}",
            "n3[\"prefer model\"]",
            "n5([\"random\"])",
            "n1 --> n2",
            "n2 -->|\"yes\"| n3",
            "n3 --> n5",
            "n2 -->|\"no\"| n5",
        ];
        assert_eq!(lines(&tree, PictureFormat::Mermaid), expected);
        let dot = lines(&tree, PictureFormat::Dot);
        assert_eq!(dot[0], "digraph tree {");
        assert!(dot.contains(&"n2 [label=\"when adapter\", shape=diamond]".to_owned()));
        assert!(dot.contains(&"n2 -> n5 [label=\"no\"]".to_owned()));
        assert_eq!(dot.last().map(String::as_str), Some("}"));
    }

    #[test]
    fn every_kind_of_node_is_drawn_and_no_name_breaks_out() {
        let patient =
            Alternative::with_patience(Node::least(costs::in_flight_share()), Duration::from_secs(5));
        let gate = Gate::MeanBelow(std::sync::Arc::new(costs::in_flight_share()), 0.5);
        let root = Node::by_model(
            [
                (
                    "evil\"]\n-->x<script>",
                    Node::first_of([patient, Alternative::new(Node::rendezvous(Key::Session))]),
                ),
                (
                    "split",
                    Node::split([
                        (1, Node::random()),
                        (3, Node::two_choices(costs::in_flight_share())),
                    ]),
                ),
            ],
            Node::gate(gate, Node::random(), Node::reject(Class::Shed, "\\full\"")),
        );
        let tree = Tree::new(Signals::Reported, root).unwrap();
        let chart = lines(&tree, PictureFormat::Mermaid);
        let has = |text: &str| assert!(chart.iter().any(|line| line == text), "{text} in {chart:#?}");
        has("n0 -->|\"evil#34;] --#62;x#60;script#62;\"| n1");
        has("n1 -->|\"1, for 5s\"| n2");
        has("n1 -->|\"2\"| n3");
        has("n4 -->|\"3 of 4\"| n6");
        has("n0 -->|\"else\"| n7");
        assert!(
            tree.picture(PictureFormat::Dot)
                .to_string()
                .contains("\"reject shed \\\\full\\\"\"")
        );
        // Each node but lists has its box, and all but the first an arrow that leads to it.
        for tree in [tree, trees::seed(), trees::gateway(), trees::balancer()] {
            let chart = lines(&tree, PictureFormat::Mermaid);
            let first = chart[1].split(['[', '{', '(']).next().unwrap().to_owned();
            for line in chart.iter().skip(2).filter(|line| !line.contains("-->")) {
                let id = line.split(['[', '{', '(']).next().unwrap();
                let leads =
                    |arrow: &&String| arrow.contains("-->") && arrow.split(' ').next_back() == Some(id);
                assert!(
                    id == first || chart.iter().any(|arrow| leads(&arrow)),
                    "{id} of {chart:#?}"
                );
            }
        }
    }
}
