"""Does each way to write a tree give the same tree, and are all its faults told at once?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import paddler
from paddler import nodes as n
from paddler.nodes import Node

TEXT = """
signals: reported
tree:
  - require: {all: [healthy, {queue_depth: {below: 50}}]}
    else: shed
  - gate: {mean: {cost: queue, below: 3}}
    then: [{prefer: least_queue}]
    else: {branch: slot, then: {prefer: model}, else: [{prefer: present}]}
  - when: critical
    then:
      first_of:
        - {tree: {pick: {least: in_flight_share}}, patience: 2s}
        - {reject: {class: shed, reason: not_now}}
    else:
      split:
        - {weight: 9, tree: {by_model: {small: {pick: random}}, else: {pick: {rendezvous: session}}}}
        - {weight: 1, tree: {pick: {two_choices: kv_pressure}}}
"""


def built() -> Node:
    small = n.by_model({"small": n.random()}, else_=n.rendezvous("session"))
    return [
        n.require({"all": ["healthy", {"queue_depth": {"below": 50}}]}, else_="shed"),
        n.gate(
            [n.prefer("least_queue")],
            else_=n.branch("slot", n.prefer("model"), else_=[n.prefer("present")]),
            mean="queue",
            below=3,
        ),
        n.when(
            "critical",
            n.first_of((n.least("in_flight_share"), "2s"), n.reject("not_now", "shed")),
            else_=n.split((9, small), (1, n.two_choices("kv_pressure"))),
        ),
    ]


def test_text_file_and_objects_give_the_same_tree(tmp_path: Path) -> None:
    text = paddler.Tree.from_yaml(TEXT)
    file = tmp_path / "tree.yaml"
    file.write_text(TEXT)
    for same in [
        paddler.Tree.from_file(file),
        paddler.Tree(built(), signals="reported"),
        paddler.Tree({"tree": built(), "signals": "reported"}),
    ]:
        assert str(same) == str(text)
    assert (len(text), text.signals, text.title(0), text.title(99)) == (18, "reported", "list", None)


@pytest.mark.parametrize("name", ["gateway", "balancer", "seed"])
def test_built_in_trees_have_names(name: str) -> None:
    assert str(paddler.Tree(name)) == str(paddler.Tree.from_yaml(f"tree: {name}"))


def test_all_faults_are_told_at_once_with_their_places() -> None:
    text = "tree:\n  - require: helthy\n  - prefer: {queue_depth: {below: many}}\n  - pick: randon\n"
    with pytest.raises(paddler.ConfigError) as told:
        paddler.Tree.from_yaml(text, name="tree.yaml")
    faults = told.value.faults
    assert [(fault.path, fault.line) for fault in faults] == [
        ("tree[0].require", 2),
        ("tree[1].prefer.queue_depth.below", 3),
        ("tree[2].pick", 4),
    ]
    assert faults[0].mend == 'did you mean "healthy"?'
    assert str(told.value).startswith('tree.yaml:2:14: tree[0].require: "helthy" is not a filter')
    assert isinstance(told.value, ValueError)


def test_faults_of_objects_have_paths() -> None:
    with pytest.raises(paddler.ConfigError) as told:
        paddler.Tree([n.require("helthy"), n.prefer("slot")])
    assert [fault.path for fault in told.value.faults] == ["tree[0].require", "tree[1]"]


def faults(nodes: object) -> list[tuple[str, str]]:
    with pytest.raises(paddler.ConfigError) as told:
        paddler.Tree(nodes)  # type: ignore[arg-type]
    return [(fault.path, fault.problem) for fault in told.value.faults]


def test_what_no_tree_can_hold_is_said_with_its_place() -> None:
    class Thing:
        def __repr__(self) -> str:
            return "<thing>"

    assert faults([{"require": Thing()}, {"prefer": {"label": {"zone": Thing()}}}, {"pick": {1, 2}}]) == [
        ("tree[0].require", "a filter should stand here, not <thing>"),
        ("tree[1].prefer.label.zone", "text should stand here, not <thing>"),
        ("tree[2].pick", "a way to pick should stand here, not {1, 2}"),
    ]
    assert faults([n.require({"label": {1: "x"}}), n.random()]) == [
        ("tree[0].require.label.1", "text should stand here, not what has 1 for its key, which is no text")
    ]
    assert faults(n.pick({"least": 10**400}))[0][0] == "tree.pick.least"
    assert faults([n.require("\ud800"), n.random()])[0][0] == "tree[0].require"
    nan = [n.require({"queue_depth": {"below": float("nan")}}), n.random()]
    assert faults(nan) == [("tree[0].require.queue_depth.below", "NaN is out of range: at least 0")]


def test_what_contains_itself_or_has_no_end_is_a_fault_and_no_crash() -> None:
    itself: list[object] = [{"pick": "random"}]
    itself.insert(0, itself)
    assert ("tree[0]", "a node should stand here, not a list that contains itself") in faults(itself)
    then: dict[str, object] = {"when": "critical"}
    then["then"] = then["else"] = then
    assert ("tree.then", "a node should stand here, not a mapping that contains itself") in faults(then)

    def calls(request: object, candidate: object) -> bool:
        return bool(calls)

    calls.itself = calls  # type: ignore[attr-defined]
    assert paddler.Tree([n.require(calls), n.random()]).title(1) == "require calls"

    class Endless(Mapping[str, object]):
        def __getitem__(self, key: str) -> object:
            return Endless()

        def __iter__(self) -> Iterator[str]:
            return iter(["a", "b"])

        def __len__(self) -> int:
            return 2

    deep: list[object] = []
    for _ in range(100):
        deep = [deep, deep]
    assert any("a list that is too deep or too large" in problem for _, problem in faults(deep))
    assert faults([n.require({"label": {"zone": Endless()}}), n.random()])[0][0] == "tree[0].require.label.zone"
    assert faults(Endless())
    with pytest.raises(paddler.ConfigError, match="labels.a: text should stand here, not a map"):
        paddler.Board().upsert("a", "http://a", labels=Endless())  # type: ignore[arg-type]


def test_nodes_without_a_key_are_told_to_stand_under_one() -> None:
    with pytest.raises(paddler.ConfigError, match="write `tree:`"):
        paddler.Tree.from_yaml("- pick: random\n")


def test_a_file_that_cannot_be_read_is_an_error_of_pythons_own(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as told:
        paddler.Tree.from_file(tmp_path / "none.yaml")
    assert told.value.filename == str(tmp_path / "none.yaml")


def test_a_way_to_pick_can_be_written_as_in_yaml() -> None:
    for how, short in [("random", n.random()), ({"least": "queue"}, n.least("queue"))]:
        assert str(paddler.Tree(n.pick(how))) == str(paddler.Tree(short))  # type: ignore[arg-type]


def test_a_tree_may_be_shared_and_replaced() -> None:
    tree = paddler.Tree([n.require({"label": {"zone": "a"}}), n.random()])
    boards = [paddler.Board(tree), paddler.Board(tree)]
    for board in boards:
        board.upsert("a", "http://a", labels={"zone": "a"})
        board.upsert("b", "http://b", labels={"zone": "b"})
    routers = [paddler.Router(board) for board in boards]
    assert {router.pick().upstream.id for router in routers for _ in range(20)} == {"a"}
    boards[0].set_tree([n.require({"label": {"zone": "b"}}), n.random()])
    assert [router.pick().upstream.id for router in routers] == ["b", "a"]
