"""Do filters and costs written in Python decide, and what becomes of a pick where one of them goes wrong?"""

from __future__ import annotations

import gc
import logging
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import paddler
from conftest import HANG, open_weight
from paddler import Board, Candidate, Facts, NodeFailed, Router
from paddler import nodes as n


def board(tree: object) -> paddler.Board:
    made = paddler.Board(tree)  # type: ignore[arg-type]
    for name, price in [("a", 3.0), ("b", 1.0), ("c", 2.0)]:
        made.upsert(name, f"http://{name}", extra={"price": price}, max_in_flight=4)
    return made


def price(request: Facts, candidate: Candidate) -> float:
    extra = candidate.upstream.extra
    assert isinstance(extra, dict)
    return float(extra["price"])


def cheap(request: Facts, candidate: Candidate, below: float = 2.5) -> bool:
    return price(request, candidate) < below


def test_functions_stand_in_the_tree_or_under_names() -> None:
    text = "tree: [{require: {cheap: {below: 1.5}}}, {pick: {least: price}}]"
    for tree, picked in [
        (paddler.Tree([n.require(cheap), n.least(price)]), {"b"}),
        (paddler.Tree([n.require(cheap), n.random()]), {"b", "c"}),
        (paddler.Tree.from_yaml(text, filters={"cheap": cheap}, costs={"price": price}), {"b"}),
        (paddler.Tree([n.require("cheap"), n.random()], filters={"cheap": cheap}), {"b", "c"}),
        (paddler.Tree(n.two_choices(price)), {"b", "c"}),
    ]:
        router = paddler.Router(board(tree), seed=7)
        assert {router.pick().upstream.id for _ in range(100)} == picked, str(tree)


def test_what_stands_under_a_name_has_to_fit_the_function() -> None:
    with pytest.raises(paddler.ConfigError) as told:
        paddler.Tree([n.require({"cheap": {"belo": 1}}), n.random()], filters={"cheap": cheap})
    assert told.value.faults[0].path == "tree[0].require"
    assert "belo" in told.value.faults[0].problem
    with pytest.raises(ValueError, match="built in"):
        paddler.Tree("gateway", filters={"healthy": cheap})
    with pytest.raises(ValueError, match="cannot be called"):
        paddler.Tree("gateway", costs={"price": 3})  # type: ignore[dict-item]


def test_a_condition_may_be_a_function() -> None:
    def urgent(request: Facts, least: int = 3) -> bool:
        return request.priority >= least

    text = "tree: {when: {any: [stream, {urgent: {least: 5}}]}, then: {pick: {least: price}}, else: {reject: {class: shed, reason: no}}}"
    otherwise = n.reject("no", "shed")
    for tree, least in [
        (paddler.Tree(n.when(urgent, n.least(price), otherwise)), 3),
        (paddler.Tree(n.when({"not": {"not": urgent}}, n.least(price), otherwise)), 3),
        (paddler.Tree(n.when("urgent", n.least(price), otherwise), conditions={"urgent": urgent}), 3),
        (paddler.Tree.from_yaml(text, costs={"price": price}, conditions={"urgent": urgent}), 5),
    ]:
        router = paddler.Router(board(tree))
        assert router.pick(priority=least).upstream.id == "b"
        with pytest.raises(paddler.Busy):
            router.pick(priority=least - 1)
    with pytest.raises(TypeError, match="'condition'"):
        paddler.Tree("gateway", condition={"urgent": urgent})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'costs'"):
        paddler.Tree("gateway", costs=[price])  # type: ignore[arg-type]
    with pytest.raises(paddler.ConfigError, match="missing a required argument"):
        paddler.Tree(n.when(cheap, n.random(), otherwise))


@pytest.mark.parametrize("wait", [False, True])
def test_a_condition_that_cannot_say_ends_the_walk_as_a_failed_node(wait: bool) -> None:
    def night(request: Facts) -> bool:
        raise LookupError("no clock")

    one = board(n.when(night, n.random(), n.random()))
    with one.start(poll_interval=None):
        router = paddler.Router(one)
        with pytest.raises(NodeFailed, match="node 0 of the tree, `when night`, could not judge: LookupError: no clock") as told:
            router.wait(timeout=HANG) if wait else router.pick()
    assert (told.value.status, told.value.node) == (500, 0)
    assert isinstance(told.value.__cause__, LookupError)
    nonsense: Any = lambda request: 1
    with pytest.raises(NodeFailed, match="it returned 1, and not True or False"):
        paddler.Router(board(n.when(nonsense, n.random(), n.random()))).pick()


def test_a_filter_that_leaves_nobody_is_named() -> None:
    def cheap(request: Facts, candidate: Candidate) -> bool:
        return False

    one = board([n.prefer("healthy"), n.require(cheap), n.random()])
    with one.start(poll_interval=None):
        router = paddler.Router(one)
        for call in (router.pick, lambda **asked: router.wait(timeout=0.01, **asked)):
            with pytest.raises(paddler.Busy, match='no upstream for the model "m" passes node 2 of the tree, `require cheap`') as told:
                call(model="m")
            assert (told.value.reason, told.value.node) == ("filtered", 2)


@n.whole
def cheapest(request: Facts, candidates: list[Candidate]) -> list[bool]:
    least = min((price(request, candidate) for candidate in candidates), default=0.0)
    return [price(request, candidate) == least for candidate in candidates]


def test_a_function_may_be_asked_of_all_at_once() -> None:
    router = paddler.Router(board([n.require(cheapest), n.random()]))
    assert router.pick().upstream.id == "b"
    assert router.pick(exclude=["b"]).upstream.id == "c"

    @n.whole
    def costs(request: Facts, candidates: list[Candidate]) -> list[float | None]:
        return [price(request, candidate) for candidate in candidates]

    assert paddler.Router(board(n.least(costs))).pick().upstream.id == "b"
    assert paddler.Router(board(n.two_choices(costs))).pick(exclude=["a"]).upstream.id == "b"

    @n.whole
    def short(request: Facts, candidates: list[Candidate]) -> list[bool]:
        return [True]

    with pytest.raises(NodeFailed, match="it returned 1 answers for 3 candidates"):
        paddler.Router(board([n.require(short), n.random()])).pick()


def test_two_functions_of_one_name_are_two() -> None:
    passes = [lambda request, candidate: candidate.id != "a", lambda request, candidate: candidate.id != "b"]
    tree = paddler.Tree([n.require(passes[0]), n.require(passes[1]), n.random()])
    assert (tree.title(1), tree.title(2)) == ("require <lambda>", "require <lambda> 2")
    assert paddler.Router(board(tree)).pick().upstream.id == "c"


def test_a_function_sees_the_request_and_the_moment() -> None:
    seen: list[tuple[object, ...]] = []

    def look(request: Facts, candidate: Candidate) -> bool:
        seen.append((request.model, request.priority, candidate.id, candidate.own_weight, candidate.waiting, candidate.fits))
        return True

    one = paddler.Board([n.require(look), n.random()])
    one.upsert("a", "http://a", max_in_flight=6)
    one.report("a", waiting=3, running=2, extra="news")
    one.publish()
    router = paddler.Router(one)
    with router.pick(model="m", priority=-1):
        router.explain(model="m")
    assert seen == [("m", -1, "a", 0, 3, True), ("m", 0, "a", 1, 3, False)]


def boom(request: Facts, candidate: Candidate) -> bool:
    raise LookupError("no price list")


def failing() -> list[tuple[object, str]]:
    nonsense = [None, 1, "yes", object()]

    def says(answer: object) -> Any:
        return lambda request, candidate: answer

    filters: list[tuple[object, str]] = [(n.require(says(answer)), "not True or False") for answer in nonsense]
    costs: list[tuple[object, str]] = [(n.least(says(answer)), "not a number or None") for answer in [True, "3", [1.0]]]
    return [(n.require(boom), "LookupError: no price list"), *filters, *costs]


@pytest.mark.parametrize(("node", "said"), failing())
def test_a_function_that_cannot_judge_fails_its_node_by_name(node: object, said: str) -> None:
    tree = paddler.Tree([n.prefer("healthy"), node, *([] if "pick" in str(node) else [n.random()])])  # type: ignore[list-item]
    router = paddler.Router(board(tree))
    with pytest.raises(NodeFailed) as told:
        router.pick(explain=True)
    error = told.value
    assert (error.status, error.reason, error.node) == (500, "filter_failed", 2)
    assert f"node 2 of the tree, `{tree.title(2)}`, could not judge" in str(error)
    assert said in str(error).replace("and not", "not")
    assert error.explanation is not None and said in error.explanation.summary.replace("and not", "not")
    assert open_weight(router.board, "a") == 0


def test_what_a_function_has_raised_is_the_cause() -> None:
    router = paddler.Router(board([n.require(boom), n.random()]))
    with pytest.raises(NodeFailed) as told:
        router.pick()
    assert isinstance(told.value.__cause__, LookupError)
    assert told.value.__cause__.__traceback__ is not None


def test_a_preference_that_fails_is_passed_over_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    router = paddler.Router(board([n.prefer(boom), n.random()]))
    with caplog.at_level(logging.ERROR, logger="paddler"):
        leases = [router.pick(explain=True) for _ in range(3)]
    assert leases[0].explanation is not None
    assert leases[0].explanation.steps[0].error == "LookupError: no price list"
    assert [record.getMessage() for record in caplog.records] == [
        "boom could not judge: LookupError: no price list; further failures are not logged"
    ]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_is_meant_for_the_whole_program_is_not_kept(kind: type[BaseException]) -> None:
    def interrupted(request: Facts, candidate: Candidate) -> bool:
        raise kind

    router = paddler.Router(board([n.prefer(interrupted), n.random()]))
    with pytest.raises(kind):
        router.pick()
    with pytest.raises(kind):
        router.explain()
    assert sum(open_weight(router.board, name) for name in "abc") == 0


def test_what_was_raised_for_one_who_waits_is_not_raised_for_the_next() -> None:
    other = paddler.Router(board(n.least(price)))

    def judge(request: Facts, candidate: Candidate) -> bool:
        if request.session == "interrupted":
            raise KeyboardInterrupt
        other.pick().release()
        return True

    one = board([n.require(judge), n.random()])
    with one.start(poll_interval=None):
        router = paddler.Router(one)
        with pytest.raises(NodeFailed, match="KeyboardInterrupt"):
            router.wait(session="interrupted", timeout=HANG)
        router.wait(timeout=HANG).release()


def test_a_function_may_pick_itself() -> None:
    inner = paddler.Router(board([n.least(price)]))

    def agrees(request: Facts, candidate: Candidate) -> bool:
        with inner.pick() as lease:
            return lease.upstream.id == candidate.id

    assert paddler.Router(board([n.require(agrees), n.random()])).pick().upstream.id == "b"


def test_functions_are_asked_for_those_who_wait_too() -> None:
    calls: list[float] = []

    def open_later(request: Facts, candidate: Candidate) -> bool:
        calls.append(time.monotonic())
        return candidate.fits

    one = paddler.Board([n.require(open_later), n.random()])
    one.upsert("a", "http://127.0.0.1:1", max_in_flight=1)
    with one.start(poll_interval=None):
        router = paddler.Router(one)
        first = router.wait()
        with pytest.raises(paddler.Busy):
            router.wait(timeout=0.05)
        first.complete()
        assert router.wait(timeout=30).upstream.id == "a"
        one.set_tree([n.require(boom), n.random()])
        with pytest.raises(NodeFailed, match="no price list"):
            router.wait(timeout=30)
    assert len(calls) > 3


def test_unknown_costs_count_as_the_median() -> None:
    known: dict[str, Callable[[], float | None]] = {"a": lambda: 1.0, "b": lambda: None, "c": lambda: 5.0}

    def cost(request: Facts, candidate: Candidate) -> float | None:
        return known[candidate.id]()

    router = paddler.Router(board(n.least(cost)))
    with router.pick() as first, router.pick(exclude=["a"]) as second:
        assert first.upstream.id in {"a", "b"} and second.upstream.id in {"b", "c"}


def test_a_function_that_asks_for_itself_without_end_is_stopped() -> None:
    def again(request: Facts, candidate: Candidate) -> bool:
        Router(own).pick().release()
        return True

    own = Board([n.require(again), n.random()])
    own.upsert("a", "http://127.0.0.1:1")
    with pytest.raises(NodeFailed) as told:
        Router(own).pick()
    cause: BaseException | None = told.value
    while isinstance(cause, NodeFailed):
        cause = cause.__cause__
    assert isinstance(cause, RecursionError) and open_weight(own, "a") == 0


@pytest.mark.parametrize(
    "tell",
    [
        lambda board: board.report("a", waiting=1),
        lambda board: board.upsert("z", "http://127.0.0.1:1"),
        lambda board: board.publish(),
        lambda board: board.drain("z"),
        lambda board: board.set_tree("balancer"),
        lambda board: board.stop(),
        lambda board: Router(board).wait(timeout=1),
    ],
)
def test_a_function_asked_for_who_waits_cannot_wait_for_the_board_that_asks_it(tell: Callable[[Board], object]) -> None:
    def judge(request: Facts, candidate: Candidate) -> bool:
        tell(own)
        return True

    own = Board([n.require(judge), n.random()])
    own.upsert("a", "http://127.0.0.1:1")
    with own.start(poll_interval=None):
        with pytest.raises(NodeFailed) as told:
            Router(own).wait(timeout=HANG)
        assert isinstance(told.value.__cause__, RuntimeError) and "own thread" in str(told.value)
        assert told.value.node is not None and "judge" in str(told.value)


def test_a_function_asked_for_who_waits_may_pick_and_tell_another_board() -> None:
    other = Board("balancer")
    other.upsert("x", "http://127.0.0.1:1")

    def judge(request: Facts, candidate: Candidate) -> bool:
        other.upsert("y", "http://127.0.0.1:1")
        Router(other).pick(only=["y"]).release()
        return True

    own = Board([n.require(judge), n.random()])
    own.upsert("a", "http://127.0.0.1:1")
    with other.start(poll_interval=None), own.start(poll_interval=None):
        assert Router(own).wait(timeout=HANG).upstream.id == "a"
        assert len(other) == 2


@pytest.mark.parametrize("how", ["report", "publish", "pick"])
def test_what_a_board_lets_go_of_may_ask_it_again(how: str) -> None:
    gone: list[str] = []

    class Extra:
        def __del__(self) -> None:
            gone.append(how)
            if how == "report":
                own.report("b", waiting=1)
            elif how == "publish":
                own.publish()
            else:
                Router(own).pick().release()

    own = Board("balancer")
    own.upsert("a", "http://a", extra=Extra())
    own.upsert("b", "http://b")
    own.publish()
    for extra in range(3):
        own.upsert("a", "http://a", extra=extra)
        own.publish()
    assert gone == [how]


def test_what_a_preferred_function_raised_is_let_go_of() -> None:
    class Big:
        pass

    held: list[weakref.ref[Big]] = []

    def boom(request: Facts, candidate: Candidate) -> bool:
        big = Big()
        held.append(weakref.ref(big))
        raise ValueError("no price list")

    own = Board([n.prefer(boom), n.random()])
    own.upsert("a", "http://a")
    Router(own).pick().release()
    gc.collect()
    assert [big() for big in held] == [None]


def test_a_function_may_have_the_name_of_something_built_in() -> None:
    def healthy(request: Facts, candidate: Candidate) -> bool:
        return candidate.id == "b"

    own = Board([n.require(healthy), n.random()])
    for name in "ab":
        own.upsert(name, f"http://{name}")
    assert Router(own).pick().upstream.id == "b"
