"""Does a pick say where a request goes, and does its lease count exactly?"""

from __future__ import annotations

import copy
import gc
import json
import pickle
import re
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import open_weight, service

import paddler
from paddler import Board, Facts, Router
from paddler import nodes as n


def balanced(*names: str, slots: int = 1) -> Board:
    board = Board("balancer")
    for name in names:
        board.upsert(name, f"http://{name}:8080", max_in_flight=slots)
    return board


def test_a_lease_counts_from_the_pick_to_the_end() -> None:
    board = balanced("a")
    router = Router(board)
    with router.pick() as lease:
        assert (lease.upstream.url, lease.stage, open_weight(board, "a")) == ("http://a:8080", "reserved", 1)
        lease.sent()
        lease.first_byte()
        assert lease.stage == "first_byte"
        lease.answered(200)
        with pytest.raises(paddler.Busy) as told:
            router.pick()
        assert (told.value.status, told.value.reason) == (429, "slots_busy")
        assert told.value.retry_after == 2.0 and told.value.should_retry
    assert (lease.stage, lease.weight, open_weight(board, "a")) == ("ended", 0, 0)
    assert "ended" in repr(lease)


def test_an_exception_means_cancelled_so_what_was_sent_settles() -> None:
    now = 0.0
    board = Board("balancer", settle=10.0, clock=lambda: now)
    board.upsert("a", "http://a", max_in_flight=1)
    router = Router(board)
    with pytest.raises(ZeroDivisionError), router.pick():
        raise ZeroDivisionError
    assert open_weight(board, "a") == 0, "it was never sent"
    with pytest.raises(ZeroDivisionError), router.pick() as lease:
        lease.sent()
        raise ZeroDivisionError
    assert (lease.stage, open_weight(board, "a")) == ("ended", 1), "the engine may go on"
    now = 1.0
    assert open_weight(board, "a") == 1
    now = 12.0
    assert open_weight(board, "a") == 0
    assert router.pick().upstream.id == "a"


def test_a_forgotten_lease_is_given_back() -> None:
    board = balanced("a")
    lease = Router(board).pick()
    gone = weakref.ref(lease)
    assert open_weight(board, "a") == 1
    del lease
    gc.collect()
    assert gone() is None and open_weight(board, "a") == 0


def test_a_lease_ends_once() -> None:
    board = balanced("a", slots=4)
    router = Router(board)
    one, other = router.pick(), router.pick()
    for _ in range(3):
        one.complete(output_tokens=3)
        one.release()
        one.sent()
        one.answered(503)
    assert open_weight(board, "a") == 1 and one.stage == "ended"
    other.release()
    assert open_weight(board, "a") == 0


def test_who_may_be_picked_can_be_said() -> None:
    router = Router(balanced("a", "b", "c", slots=100))
    picked = {router.pick(only=["a", "b"], exclude=["a"]).upstream.id for _ in range(20)}
    assert picked == {"b"}
    some = [upstream for upstream in router.board.upstreams() if upstream.id != "a"]
    assert router.pick(exclude=some).upstream.id == "a"
    for arguments, reason in [({"only": ["z"]}, "not_in_subset"), ({"exclude": ["a", "b", "c"]}, "excluded")]:
        with pytest.raises(paddler.Unavailable) as told:
            router.pick(**arguments)  # type: ignore[arg-type]
        assert told.value.reason == reason
    with pytest.raises(TypeError, match="put it into a list"):
        router.pick(only="a")


def test_refusals_have_types() -> None:
    board = Board("gateway")
    router = Router(board)
    with pytest.raises(paddler.Unavailable) as nobody:
        router.pick()
    assert (nobody.value.status, nobody.value.retry_after) == (503, 2.0)
    board.upsert("a", "http://a", models=["llama", {"id": "sql", "parent": "llama"}])
    with pytest.raises(paddler.ModelNotFound) as unknown:
        router.pick(model="qwen")
    assert (unknown.value.status, unknown.value.reason, unknown.value.retry_after) == (404, "model_not_found", None)
    assert router.pick(model="sql").upstream.models == ["llama", "sql"]
    board.set_tree(n.reject("closed_on_sundays", "shed"))
    with pytest.raises(paddler.Busy) as shed:
        router.pick()
    assert shed.value.reason == "closed_on_sundays"
    for error in (nobody.value, unknown.value, shed.value):
        assert isinstance(error, paddler.Refused)
    assert board.drain("a") and not board.drain("z")
    board.set_tree("gateway")
    with pytest.raises(paddler.Unavailable, match="drained"):
        router.pick()


def test_the_same_seed_gives_the_same_picks() -> None:
    def run(seed: int) -> list[str]:
        board = Board(n.random())
        for number in range(50):
            board.upsert(f"u{number}", "http://u")
        router = Router(board, seed=seed)
        return [router.pick().upstream.id for _ in range(50)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    board = Board(n.random())
    for number in range(50):
        board.upsert(f"u{number}", "http://u")
    assert len({Router(board).pick(seed=3).upstream.id for _ in range(20)}) == 1
    assert len({Router(board).pick().upstream.id for _ in range(200)}) > 10


def test_sessions_stay_and_tenants_are_their_fallback() -> None:
    board = Board(n.rendezvous("session"))
    for number in range(20):
        board.upsert(f"u{number}", "http://u")
    router = Router(board)
    for key in ("session", "tenant"):
        for value in ("x", "y"):
            assert len({router.pick(**{key: value}).upstream.id for _ in range(20)}) == 1  # type: ignore[arg-type]


def test_an_explanation_is_data_and_a_table_too() -> None:
    board = Board([n.require({"queue_depth": {"below": 5}}), n.least("queue")], publish_every=0)
    for name, waiting in [("a", 9), ("b", 2)]:
        board.upsert(name, f"http://{name}")
        board.report(name, waiting=waiting)
    why = Router(board).explain()
    step = {"node": 1, "title": "require queue_depth below 5", "before": 2, "after": 1, "removed": [["a", 9.0]]}
    assert json.loads(json.dumps(why.as_dict())) == {
        "outcome": "picked",
        "picked": ["b"],
        "survivors": ["b"],
        "nodes": [{"node": 0, "title": "list"}, step, {"node": 2, "title": "least queue"}],
        "summary": str(why),
    }
    assert why.table.splitlines() == [
        "node  what it does                 left",
        "   1  require queue_depth below 5  1 of 2    without a (9)",
        "   2  least queue",
        "picked: b",
    ]


def test_what_an_argument_cannot_be_is_said_with_its_name() -> None:
    router: Any = Router(balanced("a"))
    cases: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"modell": "m"}, TypeError),
        ({"model": 7}, TypeError),
        ({"prompt_tokens": -1}, OverflowError),
        ({"priority": "high"}, TypeError),
        ({"stream": "yes"}, TypeError),
        ({"seed": 1.5}, TypeError),
        ({"only": "a"}, TypeError),
        ({"exclude": [1]}, TypeError),
        ({"only": 5}, TypeError),
        ({"model": "\ud800"}, ValueError),
        ({"exclude": ["\udcff"]}, ValueError),
    ]
    for arguments, kind in cases:
        (name,) = arguments
        for call in (router.pick, router.explain):
            with pytest.raises(kind, match=f"'{name}'"):
                call(**arguments)

    class Raises(Exception):
        def __index__(self) -> int:
            raise self

    own = Raises("its own", 1)
    with pytest.raises(Raises) as told:
        router.pick(weight=own)
    assert told.value is own
    for name in ("only", "exclude", "seed", "facts"):
        given: Any = {name: None}
        with pytest.raises(TypeError, match=f"'{name}'"):
            Facts(**given)
    assert router.pick(None, model=None, weight=None, only=None, exclude=None, seed=None).upstream.id == "a"


def test_how_one_upstream_is_is_told_as_among_all() -> None:
    board = balanced("a", "b")
    router = Router(board)
    with router.pick(only=["a"]):
        with router.pick(only=["b"]) as cancelled:
            cancelled.sent()
            cancelled.release()
        # Its request has ended, and its weight settles.
        assert [(each["in_flight"], each["open_weight"]) for each in board.statuses()] == [(1, 1), (0, 1)]
        assert [board.status("a"), board.status("b")] == board.statuses()
    assert board.status("z") is None
    assert not hasattr(board, "in_flight") and not hasattr(board, "health")


def test_how_each_upstream_is_can_be_seen() -> None:
    now = 0.0
    board = Board("balancer", publish_every=0, clock=lambda: now)
    board.upsert("a", "http://a", max_in_flight=4)
    board.upsert("b", "http://b")
    board.report("a", waiting=2, running=1, kv_cache_usage=0.5, health="ready")
    assert board.failed("a", "timeout", "no answer in 3 s") and board.drain("b")
    with Router(board).pick() as lease:
        lease.failed("broke")
        now = 1.5
        one, other = board.statuses()
    assert (one["id"], one["url"], one["draining"], one["able"]) == ("a", "http://a:80", False, True)
    assert (one["in_flight"], one["open_weight"], one.get("limit_weight")) == (1, 1, 4)
    assert (one.get("waiting"), one.get("running"), one.get("kv_cache_usage"), one.get("health")) == (2, 1, 0.5, "ready")
    assert (one.get("report_age_seconds"), one["failed_polls"]) == (1.5, 1)
    assert one.get("last_failure") == "timeout: no answer in 3 s"
    service = one.get("service")
    assert service is not None and (service["state"], service["faults"]) == ("healthy", 1)
    assert other["draining"] and other["id"] == "b" and "report_age_seconds" not in other and "last_failure" not in other
    with pytest.raises(ValueError, match='"tired" is not a failure; known: unreachable, timeout'):
        board.failed("a", "tired")  # type: ignore[arg-type]


def test_an_explanation_has_steps_values_and_a_line() -> None:
    board = Board([n.require({"queue_depth": {"below": 5}}), n.least("queue")], publish_every=0)
    for name, waiting in [("a", 9), ("b", 2), ("c", 1)]:
        board.upsert(name, f"http://{name}")
        board.report(name, waiting=waiting)
    router = Router(board)
    why = router.explain()
    assert str(why) == "require queue_depth below 5 2 of 3, least queue -> c"
    assert (why.outcome, why.reason, why.picked, why.survivors) == ("picked", None, ["c"], ["b", "c"])
    step = why.steps[0]
    assert (step.node, step.title, step.before, step.after) == (1, "require queue_depth below 5", 3, 2)
    assert step.removed == [("a", 9.0)] and step.error is None
    assert why.path[-1] == (2, "least queue")
    assert open_weight(board, "c") == 0, "nothing is reserved"
    lease = router.pick(explain=True)
    assert lease.explanation is not None and lease.explanation.summary == why.summary
    assert router.pick().explanation is None
    with pytest.raises(paddler.Refused) as told:
        router.pick(only=["a"], explain=True)
    assert told.value.explanation is not None
    assert (told.value.explanation.outcome, told.value.explanation.reason) == ("later", "queue_deep")


def test_reports_are_whole_and_unknown_is_not_zero() -> None:
    board = Board([n.require({"queue_depth": {"below": 5, "unknown": "fail"}}), n.random()], publish_every=0)
    board.upsert("a", "http://a")
    router = Router(board)
    assert board.report("a", paddler.Report(waiting=0)) and router.pick()
    assert board.report("a", running=0)
    with pytest.raises(paddler.Busy):
        router.pick()
    assert not board.report("z", waiting=0)
    assert board.report("a", adapters={"max": 4, "running": ["sql"], "waiting": []}, models=["m", {"id": "n"}])
    with pytest.raises(paddler.ConfigError) as told:
        said: Any = {"wating": 3, "running": -1, "models": ["m", 7], "adapters": {"max": "four"}}
        board.report("a", **said)
    assert [(fault.path, fault.problem) for fault in told.value.faults] == [
        ("running", "-1 is out of range: 0 to 4294967295"),
        ("adapters.max", 'a whole number should stand here, not "four"'),
        ("models[1]", "text should stand here, not 7"),
        ("wating", "unknown key"),
    ]
    assert told.value.faults[-1].mend == 'did you mean "waiting"?'
    with pytest.raises(TypeError, match="not both"):
        board.report("a", paddler.Report(), waiting=3)
    assert paddler.Report(kv_cache_usage=0.5).as_dict()["kv_cache_usage"] == 0.5
    assert repr(paddler.Report(waiting=1)) == "<paddler.Report waiting=1>"
    whole: Any = paddler.Report(waiting=1, models=["m"], adapters={"max": 4, "running": ["sql"], "waiting": []}).as_dict()
    assert paddler.Report(**whole).as_dict() == whole and whole["models"]["listed"][0]["id"] == "m"
    nothing: Any = paddler.Report(models=[]).as_dict()["models"]
    assert nothing == {"listed": []}, "it has told that it serves none"


def test_a_report_can_be_made_again_of_what_it_says() -> None:
    report = paddler.read_vllm(b"vllm:num_requests_running 3\n")
    said: Any = report.as_dict()
    assert said["running"] == 3 and said["degraded"][0]["found"] == "missing"
    assert paddler.Report(**said).as_dict() == said
    with pytest.raises(paddler.ConfigError, match="degraded: "):
        paddler.Report(**{**said, "degraded": [{"signal": "smell", "expected": "", "found": ""}]})


def test_upstreams_are_written_as_in_a_config() -> None:
    board = Board()
    with pytest.raises(paddler.ConfigError) as told:
        board.upsert("a b", "ftp://x", max_in_fligth=3)  # type: ignore[call-arg]
    assert [fault.path for fault in told.value.faults] == ["url", "id", "max_in_fligth"]
    assert told.value.faults[2].mend == 'did you mean "max_in_flight"?'
    extra = object()
    board.upsert("a", "http://a:1", labels={"zone": "x"}, engine="vllm", extra=extra, api_key="secret", models=None)
    (upstream,) = board.upstreams()
    assert (upstream.labels, upstream.extra is extra, upstream.max_in_flight) == ({"zone": "x"}, True, None)
    assert repr(upstream) == "<paddler.Upstream a at http://a:1>" and "secret" not in repr(upstream)
    assert board.remove("a") and not board.remove("a") and len(board) == 0 and bool(board)


def test_a_key_that_cannot_be_is_refused_with_what_to_do(tmp_path: Path) -> None:
    board: Any = Board("balancer")
    file, gone = tmp_path / "key", tmp_path / "gone"
    file.write_text("two words")
    cases = [
        ({"api_key": "clé"}, "the key for the upstream gpu-1 is not of visible ASCII"),
        ({"api_key_file": str(gone)}, f"{gone} (the key for the upstream gpu-1) cannot be read: there is no such file; make it"),
        ({"api_key_file": str(file)}, f"{file} (the key for the upstream gpu-1) holds no key"),
        ({"api_key": "one", "api_key_file": str(file)}, "has `api_key` and `api_key_file`: keep one"),
    ]
    for keys, why in cases:
        with pytest.raises(ValueError, match=re.escape(why)):
            board.upsert("gpu-1", "http://a", **keys)
    assert len(board) == 0


def test_an_upstream_that_fails_gets_nothing_for_a_while() -> None:
    board = balanced("a", "b", slots=100)
    router = Router(board)
    with router.pick(only=["a"]) as lease:
        lease.sent()
        lease.failed("unreachable")
        assert lease.stage == "ended"
    assert service(board, "a") == "ejected" and board.status("z") is None
    assert {router.pick().upstream.id for _ in range(50)} == {"b"}
    with router.pick() as lease:
        with pytest.raises(ValueError, match="not a fault; known: unreachable, broke"):
            lease.failed("tired")  # type: ignore[arg-type]
        lease.answered(429, retry_after=5.0)
    with pytest.raises(paddler.Refused) as told:
        router.pick()
    assert told.value.retry_after is not None


def test_a_lease_follows_who_serves() -> None:
    board = balanced("a", "b", slots=2)
    lease = Router(board).pick(only=["a"])
    lease.move_to("b")
    assert (lease.upstream.id, open_weight(board, "a"), open_weight(board, "b")) == ("b", 0, 1)
    with pytest.raises(KeyError):
        lease.move_to("z")


def test_what_goes_when_a_lease_moves_may_ask_the_lease() -> None:
    asked: list[str] = []

    class Extra:
        def __del__(self) -> None:
            asked.append(lease.upstream.id)

    board = balanced("b")
    board.upsert("a", "http://a", extra=Extra())
    lease = Router(board).pick(only=["a"])
    board.remove("a")
    board.publish()
    assert not asked, "the lease has it"
    lease.move_to("b")
    assert asked == ["b"]


def test_threads_share_a_router_and_no_limit_is_exceeded() -> None:
    board = balanced("a", "b", "c", slots=3)
    router = Router(board)
    most = {name: 0 for name in "abc"}
    served = [0]
    lock = threading.Lock()

    def work() -> None:
        for _ in range(500):
            try:
                with router.pick() as lease:
                    held = open_weight(board, lease.upstream.id)
                    assert held is not None
                    with lock:
                        most[lease.upstream.id] = max(most[lease.upstream.id], held)
                        served[0] += 1
            except paddler.Busy:
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert served[0] > 100 and all(1 <= held <= 3 for held in most.values())
    assert sum(open_weight(board, name) for name in "abc") == 0


def test_a_pick_among_very_many_works_while_other_threads_run() -> None:
    names = [f"u{number}" for number in range(10_001)]
    router = Router(balanced(*names))
    picked: list[set[str]] = [set(), set()]

    def work(mine: set[str]) -> None:
        for _ in range(20):
            lease = router.pick()
            leases.append(lease)
            mine.add(lease.upstream.id)

    leases: list[paddler.Lease] = []
    threads = [threading.Thread(target=work, args=(mine,)) for mine in picked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(picked[0] | picked[1]) == 40, "each has one slot"


def test_facts_are_read_from_a_body() -> None:
    body = b'{"model": "llama", "stream": true, "n": 3, "user": "eve", "messages": [{"role": "user", "content": "Hi there"}]}'
    facts = Facts.from_body("/v1/chat/completions", body)
    assert (facts.kind, facts.task, facts.model, facts.weight, facts.stream) == ("generate", "chat", "llama", 3, True)
    assert facts.prompt_tokens >= 2 and facts.session == "eve" and facts.body_bytes == len(body)
    assert Facts.from_body("/v1/models", b"", method="GET").kind == "local"
    assert Facts.from_body("/slots", bytearray(), method="GET").kind == "admin"
    for path, bad in [("/v1/chat/completions", b'{"model": "a", "Model": "b"}'), ("/v1/completions", b"{"), ("x", b"{}")]:
        with pytest.raises(paddler.BadRequest) as told:
            Facts.from_body(path, bad)
        assert told.value.status == 400
    router = Router(balanced("a", slots=8))
    lease = router.pick(facts)
    assert lease.weight == 3
    assert router.pick(facts, weight=1).weight == 1
    assert repr(Facts(model="m", priority=-1)).startswith("<paddler.Facts chat model=m weight=1")
    with pytest.raises(ValueError, match="not a task; known: chat, completion"):
        Facts(task="chess")  # type: ignore[arg-type]


def test_priority_decides_what_may_be_shed() -> None:
    board = Board("seed", publish_every=0)
    board.upsert("a", "http://a")
    board.report("a", waiting=9, kv_cache_usage=0.1, adapters={"max": 4, "running": [], "waiting": []})
    router = Router(board)
    assert router.pick(priority=0)
    with pytest.raises(paddler.Busy) as told:
        router.pick(Facts(priority=-1))
    assert told.value.reason == "queue_deep"
    assert router.pick(Facts(priority=-1), priority=1)


def test_a_lease_that_failed_is_not_complete_when_its_with_is_left() -> None:
    board = Board("balancer")
    board.upsert("a", "http://a", max_in_flight=1)
    with Router(board).pick() as lease:
        lease.sent()
        lease.failed("late")
    assert open_weight(board, "a") == 1, "the engine may go on, so its place settles"


@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_errors_can_be_copied_and_sent_to_other_processes(copied: Callable[[Exception], Exception]) -> None:
    with pytest.raises(paddler.Refused) as refused:
        Router(Board("balancer")).pick()
    with pytest.raises(paddler.ConfigError) as unsound:
        paddler.Tree([{"pick": "nobody"}])
    for error in (refused.value, unsound.value):
        again = copied(error)
        assert type(again) is type(error) and str(again) == str(error)
        assert vars(again) == vars(error)


def test_waiting_and_explaining_take_no_arguments_of_each_other() -> None:
    router: Any = Router(Board("balancer"))
    for call, name in [(router.explain, "timeout"), (router.wait, "explain"), (router.wait, "done"), (router.wait, "seed")]:
        with pytest.raises(TypeError, match=name):
            call(**{name: True})


@pytest.mark.parametrize(
    ("signal", "value"),
    [("waiting", True), ("waiting", -1), ("waiting", 2**32), ("running", "x"), ("kv_cache_usage", float("nan"))]
    + [("kv_cache_usage", share) for share in (-0.1, 45.0, 7e300)],
)
def test_a_signal_that_cannot_be_is_named(signal: str, value: Any) -> None:
    with pytest.raises(ValueError, match=signal):
        paddler.Report(**{signal: value})
    assert paddler.Report(kv_cache_usage=1.0, waiting=0).as_dict()["kv_cache_usage"] == 1.0
