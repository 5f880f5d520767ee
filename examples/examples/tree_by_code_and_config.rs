//! One tree, written in Rust and in YAML: what is built is the same, and so is the choice.

use std::error::Error;

use paddler_core::Moment;
use paddler_core::config::{Registry, tree_from_yaml};
use paddler_core::request::Facts;
use paddler_core::schedule::filters::{Bound, healthy, least_queue, model, queue_depth, slot};
use paddler_core::schedule::{Ask, Class, Condition, Explanation, Node, Scratch, Signals, Tree, costs};
use paddler_core::status::{StatusBoard, StatusEvent};
use paddler_core::upstream::{ModelEntry, Models, UpstreamSpec};

const YAML: &str = "
tree:
  - require: model            # nobody has it: 404 or 503 now
  - require: healthy
  - require: slot             # all are taken: wait
  - when: critical
    then:
      - prefer: least_queue
      - pick: random
    else:
      - require: {queue_depth: {at_most: 5}}
        else: shed            # not worth a long queue: 429 now
      - pick: {least: in_flight_share}
";

fn by_code() -> Result<Tree, Box<dyn Error>> {
    let critical = Node::list([Node::prefer(least_queue()), Node::random()]);
    let others = Node::list([
        Node::require_or(queue_depth(Bound::AtMost(5.0)), Class::Shed),
        Node::least(costs::in_flight_share()),
    ]);
    let root = Node::list([
        Node::require(model()),
        Node::require(healthy()),
        Node::require(slot()),
        Node::when(Condition::Critical, critical, others),
    ]);
    Ok(Tree::new(Signals::Corrected, root)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let written = tree_from_yaml(YAML, "tree.yaml", &Registry::new())?;
    assert_eq!(written.to_string(), by_code()?.to_string(), "the same tree");

    let mut board = StatusBoard::new(written);
    for (name, model) in [("a", "small"), ("b", "large")] {
        let spec = UpstreamSpec::new(name, "http://127.0.0.1:8080")?;
        let models = Models::Listed(vec![ModelEntry::new(model)]);
        board.apply(StatusEvent::Upsert(spec.models(models)), Moment::ZERO);
    }
    let snapshot = board.publish(Moment::ZERO);
    let mut facts = Facts::new();
    facts.model = Some("large");
    let mut why = Explanation::default();
    let outcome = snapshot.pick(
        &Ask::new(&facts, Moment::ZERO, 1),
        &mut Scratch::default(),
        &mut why,
    );
    for step in &why.steps {
        println!(
            "{}: {} of {} left",
            snapshot.tree().title(step.node).unwrap_or_default(),
            step.after,
            step.before
        );
    }
    assert_eq!(outcome.picked(), snapshot.index("b"));

    // What is wrong in a file is said with its place, all of it at once.
    let misspelt = "tree:\n  - require: helthy\n  - pick: randon\n";
    let faults = tree_from_yaml(misspelt, "tree.yaml", &Registry::new()).expect_err("two words are misspelt");
    println!("{faults}");
    Ok(())
}
