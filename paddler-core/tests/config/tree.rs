//! Does every kind of node, filter, cost and condition come out as the tree that code would make?

use std::sync::Arc;
use std::time::Duration;

use paddler_core::config::{self, Kind, Registry, Value, tree_from_value, tree_from_yaml};
use paddler_core::request::Task;
use paddler_core::schedule::costs::{in_flight_share, kv_pressure, prefill_product, queue, weighted};
use paddler_core::schedule::filters::{
    Bound, Margin, Unknown, all_of, any_of, fresh, healthy, heard, kv_cache, label, least_kv_cache,
    least_queue, lora_active, lora_low_cost, lora_room, model, not, present, queue_depth, slot, within_best,
};
use paddler_core::schedule::trees::{self, SeedThresholds};
use paddler_core::schedule::{Alternative, Class, Condition, Cost, Filter, Gate, Key, Node, Signals, Tree};

fn read(text: &str) -> Tree {
    tree_from_yaml(text, "tree.yaml", &Registry::new()).unwrap_or_else(|faults| panic!("{text}\n{faults}"))
}

/// The tree of a text is that of the node.
fn same(text: &str, node: Node) {
    alike(&read(text), &Tree::new(Signals::Corrected, node).unwrap());
}

fn alike(one: &Tree, other: &Tree) {
    assert_eq!(one.to_string(), other.to_string());
}

#[test]
fn built_in_trees_are_the_same_in_words_and_in_code() {
    alike(&read(trees::SEED), &trees::seed());
    alike(&read(trees::BALANCER), &trees::balancer());
    alike(&read(trees::GATEWAY), &trees::gateway());
}

#[test]
fn built_in_trees_go_by_name() {
    alike(&read("tree: seed"), &trees::seed());
    alike(&read("tree: balancer"), &trees::balancer());
    alike(&read("tree: gateway"), &trees::gateway());
    let other = SeedThresholds {
        low_queue: 10,
        shed_kv_cache: 1.0,
        ..SeedThresholds::default()
    };
    let text = "tree: {seed: {low_queue: 10, shed_kv_cache: 1}}";
    alike(&read(text), &trees::seed_with(other));
    alike(&read("tree: {seed: {}}"), &trees::seed());
}

#[test]
fn nodes_alone_are_told_where_to_go() {
    let faults = tree_from_yaml("- pick: random", "", &Registry::new()).unwrap_err();
    assert_eq!(
        faults.to_string(),
        "1:1: these are nodes alone; write `tree:` and put them under it"
    );
}

#[test]
fn what_a_host_was_given_and_no_config_can_hold_is_a_fault_in_its_place() {
    let key = |text: &str| config::Key {
        text: text.into(),
        place: None,
    };
    let other = |what: &str| Value::new(Kind::Other(what.into()));
    let node = |head, value| Value::new(Kind::Map(vec![(key(head), value)]));
    let nodes = vec![
        node("require", other("<object>")),
        other("a set"),
        node("pick", other("1j")),
    ];
    let value = node("tree", Value::new(Kind::List(nodes)));
    let faults = tree_from_value(&value, "", &Registry::new()).unwrap_err();
    assert_eq!(
        faults.to_string(),
        "tree[0].require: a filter should stand here, not <object>\n\
         tree[1]: a node should stand here, not a set\n\
         tree[2].pick: a way to pick should stand here, not 1j"
    );
    assert_eq!(
        serde_json::to_value(node("a", other("b"))).unwrap(),
        serde_json::json!({"a": "b"})
    );
}

#[test]
fn signals_are_corrected_unless_said() {
    assert_eq!(read("tree: {pick: random}").signals(), Signals::Corrected);
    assert_eq!(
        read("{signals: corrected, tree: {pick: random}}").signals(),
        Signals::Corrected
    );
    assert_eq!(
        read("{signals: reported, tree: {pick: random}}").signals(),
        Signals::Reported
    );
}

#[test]
fn json_reads_as_yaml_does() {
    let json = serde_json::json!({"tree": [{"require": {"fresh": {"max_age": "10s"}}}, {"pick": "random"}]});
    let value = Value::from_json(&json).unwrap();
    let tree = tree_from_value(&value, "tree.json", &Registry::new()).unwrap();
    alike(&tree, &read(&json.to_string()));
}

fn filters() -> Vec<(&'static str, Arc<dyn Filter>)> {
    let labels: Vec<Arc<dyn Filter>> = vec![
        Arc::new(label("zone", ["a"])),
        Arc::new(label("gpu", ["h100", "h200"])),
    ];
    vec![
        ("present", Arc::new(present())),
        ("model", Arc::new(model())),
        ("healthy", Arc::new(healthy())),
        ("heard", Arc::new(heard())),
        (
            "{fresh: {max_age: 1.5s}}",
            Arc::new(fresh(Duration::from_millis(1500))),
        ),
        ("slot", Arc::new(slot())),
        (
            "{queue_depth: {below: 50}}",
            Arc::new(queue_depth(Bound::Below(50.0))),
        ),
        (
            "{queue_depth: {at_most: 0, unknown: fail}}",
            Arc::new(queue_depth(Bound::AtMost(0.0)).unknown(Unknown::Fail)),
        ),
        ("least_queue", Arc::new(least_queue())),
        (
            "{kv_cache: {at_most: 0.8, unknown: pass}}",
            Arc::new(kv_cache(Bound::AtMost(0.8))),
        ),
        ("{kv_cache: {below: 1}}", Arc::new(kv_cache(Bound::Below(1.0)))),
        ("least_kv_cache", Arc::new(least_kv_cache())),
        ("lora_active", Arc::new(lora_active())),
        ("lora_room", Arc::new(lora_room())),
        ("lora_low_cost", Arc::new(lora_low_cost())),
        ("{label: zone}", Arc::new(label("zone", [""; 0]))),
        ("{label: {zone: a}}", Arc::new(label("zone", ["a"]))),
        ("{label: {zone: a, gpu: [h100, h200]}}", Arc::new(all_of(labels))),
        (
            "{within_best: {cost: queue, times: 1.2}}",
            Arc::new(within_best(queue(), Margin::Times(1.2))),
        ),
        (
            "{within_best: {cost: kv_pressure, plus: 3}}",
            Arc::new(within_best(kv_pressure(), Margin::Plus(3.0))),
        ),
        (
            "{all: [slot, healthy]}",
            Arc::new(all_of([Arc::new(slot()) as Arc<dyn Filter>, Arc::new(healthy())])),
        ),
        (
            "{any: [slot, {not: heard}]}",
            Arc::new(any_of([
                Arc::new(slot()) as Arc<dyn Filter>,
                Arc::new(not(heard())),
            ])),
        ),
    ]
}

#[test]
fn every_filter() {
    for (text, filter) in filters() {
        let tree = format!("tree: [{{require: {text}}}, {{pick: random}}]");
        same(&tree, Node::list([Node::require(filter.clone()), Node::random()]));
        let tree = format!("tree:\n  - prefer: {text}\n  - pick: random\n");
        same(&tree, Node::list([Node::prefer(filter), Node::random()]));
    }
}

#[test]
fn every_cost() {
    let parts: [(f32, Arc<dyn Cost>); 2] = [(2.0, Arc::new(queue())), (0.5, Arc::new(kv_pressure()))];
    let costs: Vec<(&str, Arc<dyn Cost>)> = vec![
        ("queue", Arc::new(queue())),
        ("in_flight_share", Arc::new(in_flight_share())),
        ("kv_pressure", Arc::new(kv_pressure())),
        ("prefill_product", Arc::new(prefill_product())),
        (
            "{weighted: [{weight: 2, cost: queue}, {weight: 0.5, cost: kv_pressure}]}",
            Arc::new(weighted(parts)),
        ),
    ];
    for (text, cost) in costs {
        same(
            &format!("tree: {{pick: {{least: {text}}}}}"),
            Node::least(cost.clone()),
        );
        same(
            &format!("tree: {{pick: {{two_choices: {text}}}}}"),
            Node::two_choices(cost),
        );
    }
}

#[test]
fn every_condition() {
    for (text, condition) in [
        ("critical", Condition::Critical),
        ("sheddable", Condition::Not(Box::new(Condition::Critical))),
        ("adapter", Condition::Adapter),
        ("stream", Condition::Stream),
        ("session", Condition::Session),
        ("{priority: {at_least: -3}}", Condition::PriorityAtLeast(-3)),
        ("{tokens: {at_least: 4000}}", Condition::TokensAtLeast(4000)),
        ("{model: llama-3}", Condition::Model("llama-3".into())),
        ("{task: chat}", Condition::Task(Task::Chat)),
        ("{task: image}", Condition::Task(Task::Image)),
        (
            "{all: [critical, stream]}",
            Condition::All(vec![Condition::Critical, Condition::Stream]),
        ),
        (
            "{any: [{not: session}]}",
            Condition::Any(vec![Condition::Not(Box::new(Condition::Session))]),
        ),
    ] {
        let tree = format!("tree: {{when: {text}, then: {{pick: random}}, else: {{pick: random}}}}");
        same(&tree, Node::when(condition, Node::random(), Node::random()));
    }
}

#[test]
fn every_task() {
    for task in [
        Task::Chat,
        Task::Completion,
        Task::Infill,
        Task::Embedding,
        Task::Pooling,
        Task::Rerank,
        Task::Responses,
        Task::Messages,
        Task::Audio,
        Task::Image,
        Task::Other,
    ] {
        let tree = format!("tree: [{{when: {{task: {task}}}, then: []}}, {{pick: random}}]");
        let when = Node::when(Condition::Task(task), Node::list([]), Node::list([]));
        same(&tree, Node::list([when, Node::random()]));
    }
}

#[test]
fn nodes_that_narrow() {
    same(
        "tree: [{require: slot, else: shed}, {require: model, else: never}, {require: heard, else: later}, {pick: random}]",
        Node::list([
            Node::require_or(slot(), Class::Shed),
            Node::require_or(model(), Class::Never),
            Node::require_or(heard(), Class::Later),
            Node::random(),
        ]),
    );
    same(
        "tree: {branch: slot, then: {pick: random}, else: {pick: {least: queue}}}",
        Node::branch(slot(), Node::random(), Node::least(queue())),
    );
}

#[test]
fn titles_are_in_the_words_of_a_file() {
    let text = "
tree:
  - require: {all: [model, healthy, {fresh: {max_age: 10s}}]}
    else: shed
  - prefer: {any: [{label: zone}, {label: {zone: [a, b]}}, {not: heard}]}
  - branch: {queue_depth: {at_most: 5, unknown: fail}}
    then: {reject: {class: never, reason: closed}}
  - gate: {mean: {cost: in_flight_share, below: 0.8}}
    then:
      first_of:
        - tree: {split: [{weight: 9, tree: {pick: random}}, {weight: 1, tree: {pick: {rendezvous: session}}}]}
          patience: 2s
        - {pick: {two_choices: kv_pressure}}
  - when: {all: [{priority: {at_least: 1}}, {task: chat}, {not: {model: big}}]}
    then: {prefer: {within_best: {cost: prefill_product, times: 1.2}}}
  - by_model: {a: {prefer: least_queue}, b: {prefer: {kv_cache: {below: 0.95}}}}
  - pick: {least: {weighted: [{weight: 2, cost: queue}, {weight: 0.5, cost: kv_pressure}]}}
";
    let expected = "\
signals corrected
list
  require all [model, healthy, fresh 10s] else shed
  prefer any [label zone, label zone in [a, b], not heard]
  branch queue_depth at_most 5 unknown fail
    reject never closed
    list
  gate mean in_flight_share below 0.8
    first_of [patience 2s, wait]
      split [9, 1]
        random
        rendezvous session
      two_choices kv_pressure
    list
  when all [priority at_least 1, task chat, not model big]
    prefer within_best prefill_product times 1.2
    list
  by_model [a, b]
    prefer least_queue
    prefer kv_cache below 0.95
    list
  least weighted [2 queue, 0.5 kv_pressure]
";
    assert_eq!(read(text).to_string(), expected);
    let seldom = trees::gateway_with(Duration::from_secs(300)).to_string();
    let often = trees::gateway().to_string();
    assert_eq!(seldom, often.replace("fresh 10s", "fresh 300s"));
}

#[test]
fn gates() {
    let ends = || (Node::random(), Node::least(queue()));
    for (text, gate) in [
        ("{any: slot}", Gate::Any(Arc::new(slot()))),
        (
            "{all: {queue_depth: {below: 5}}}",
            Gate::All(Arc::new(queue_depth(Bound::Below(5.0)))),
        ),
        (
            "{mean: {cost: in_flight_share, below: 0.8}}",
            Gate::MeanBelow(Arc::new(in_flight_share()), 0.8),
        ),
    ] {
        let tree =
            format!("tree: {{gate: {text}, then: {{pick: random}}, else: {{pick: {{least: queue}}}}}}");
        let (then, otherwise) = ends();
        same(&tree, Node::gate(gate, then, otherwise));
    }
}

#[test]
fn ways_apart() {
    same(
        "tree: {first_of: [[{require: slot}, {pick: random}], {tree: {pick: {least: queue}}, patience: 2s}]}",
        Node::first_of([
            Alternative::new(Node::list([Node::require(slot()), Node::random()])),
            Alternative::with_patience(Node::least(queue()), Duration::from_secs(2)),
        ]),
    );
    same(
        "tree: {split: [{weight: 9, tree: {pick: random}}, {weight: 0, tree: {pick: {least: queue}}}]}",
        Node::split([(9, Node::random()), (0, Node::least(queue()))]),
    );
    same(
        "tree: {by_model: {b: {pick: random}, a: {pick: {least: queue}}, 7: {pick: random}}, else: {pick: random}}",
        Node::by_model(
            [
                ("b", Node::random()),
                ("a", Node::least(queue())),
                ("7", Node::random()),
            ],
            Node::random(),
        ),
    );
}

#[test]
fn ends() {
    for (text, node) in [
        ("{pick: random}", Node::random()),
        ("{pick: {rendezvous: session}}", Node::rendezvous(Key::Session)),
        ("{pick: {rendezvous: tenant}}", Node::rendezvous(Key::Tenant)),
        ("{pick: {rendezvous: model}}", Node::rendezvous(Key::Model)),
        (
            "{reject: {class: never, reason: closed}}",
            Node::reject(Class::Never, "closed"),
        ),
        (
            "{reject: {class: later, reason: too_hot}}",
            Node::reject(Class::Later, "too_hot"),
        ),
    ] {
        same(&format!("tree: {text}"), node);
    }
}

#[test]
fn an_else_may_be_left_out_where_a_later_node_decides() {
    let text = "
tree:
  - when: adapter
    then: {prefer: lora_active}
  - branch: slot
    then: {prefer: least_queue}
  - gate: {any: slot}
    then: {reject: {class: shed, reason: cheap}}
  - by_model: {a: {prefer: heard}}
  - pick: random
";
    let none = || Node::list([]);
    same(
        text,
        Node::list([
            Node::when(Condition::Adapter, Node::prefer(lora_active()), none()),
            Node::branch(slot(), Node::prefer(least_queue()), none()),
            Node::gate(
                Gate::Any(Arc::new(slot())),
                Node::reject(Class::Shed, "cheap"),
                none(),
            ),
            Node::by_model([("a", Node::prefer(heard()))], none()),
            Node::random(),
        ]),
    );
}
