"""Does a request wait in turn for room, and does nothing of it stay behind?"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paddler
from conftest import HANG, Engine, eventually, open_weight
from paddler import Board, Lease, Router
from paddler import nodes as n


def started(slots: int = 1, **options: object) -> Board:
    board = Board("balancer")
    board.upsert("a", "http://127.0.0.1:1", max_in_flight=slots)
    return board.start(poll_interval=None, **options)  # type: ignore[arg-type]


def test_a_task_gets_the_place_that_becomes_free() -> None:
    async def run(board: Board) -> None:
        router = Router(board)
        first = await router.acquire()
        waits = asyncio.create_task(router.acquire(model="m", priority=1, timeout=HANG))
        await asyncio.sleep(0.02)
        assert not waits.done()
        first.complete(output_tokens=5)
        with await waits as lease:
            assert lease.upstream.id == "a" and open_weight(board, "a") == 1
            lease.complete(prompt_tokens=1, output_tokens=7)
        assert open_weight(board, "a") == 0

    with started() as board:
        asyncio.run(run(board))


def test_a_wait_is_bounded_and_says_why_it_was_in_vain() -> None:
    async def run(router: Router) -> None:
        with await router.acquire():
            with pytest.raises(paddler.Busy, match="after waiting") as told:
                await router.acquire(timeout=0.02)
            assert (told.value.reason, told.value.status) == ("slots_busy", 429)
            assert told.value.retry_after is not None
            with pytest.raises(paddler.Unavailable):
                await router.acquire(only=["z"])
            for timeout in (-1, float("inf"), float("nan"), 1e300):
                with pytest.raises(ValueError, match="timeout: .* no time in seconds"):
                    await router.acquire(timeout=timeout)

    with started() as board:
        asyncio.run(run(Router(board)))


def test_who_does_not_wait_hears_the_same_of_a_pause_as_who_does() -> None:
    board = Board("balancer")
    board.upsert("a", "http://a")
    board.upsert("b", "http://b")
    router = Router(board)
    with board.start(poll_interval=None):
        with router.pick(only=["a"]) as lease:
            lease.answered(429, retry_after=30)
        assert router.pick().upstream.id == "b"
        # Whoever may go nowhere else, by what he names, has to come again when this one wants work.
        with pytest.raises(paddler.Busy) as at_once:
            router.pick(only=["a"])
        with pytest.raises(paddler.Busy) as after_a_wait:
            router.wait(only=["a"], timeout=0.01)
        for told in (at_once, after_a_wait):
            assert (told.value.reason, told.value.status) == ("upstreams_busy", 429)
            assert told.value.retry_after is not None and 2 < told.value.retry_after <= 30


def test_a_cancelled_task_is_out_of_the_queue() -> None:
    async def served(task: asyncio.Task[Lease]) -> Lease:
        lease = await task
        lease.complete()
        return lease

    async def run(board: Board) -> None:
        router = Router(board)
        for _ in range(20):
            first = await router.acquire()
            tasks = [asyncio.create_task(router.acquire()) for _ in range(3)]
            await asyncio.sleep(0)
            # One is cancelled in the very moment in which it may have got the place.
            first.complete()
            tasks[0].cancel()
            # Each gives its place back as soon as it has it: the others wait for that.
            done = await asyncio.gather(*map(served, tasks), return_exceptions=True)
            assert [isinstance(one, Lease) for one in done[1:]] == [True, True], done

    with started() as board:
        asyncio.run(run(board))
        eventually("all is given back", lambda: open_weight(board, "a") == 0)


def test_a_full_queue_refuses_at_once_and_who_stands_in_it_is_served() -> None:
    with started(max_requests=2, max_wait=HANG) as board:
        router = Router(board)
        first = router.pick()
        served: list[int] = []

        def wait(number: int) -> None:
            while True:
                try:
                    with router.wait():
                        served.append(number)
                    return
                except paddler.Busy as busy:
                    # Whoever asks below whether both wait stands in the queue himself for a moment.
                    assert busy.reason == "queue_full"

        threads = [threading.Thread(target=wait, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        eventually("both wait", lambda: refused(router))
        first.complete()
        for thread in threads:
            thread.join(HANG)
        assert sorted(served) == [0, 1]


def refused(router: Router) -> bool:
    try:
        router.wait(timeout=0.01)
    except paddler.Busy as busy:
        return busy.reason == "queue_full"
    return False


def test_only_a_started_board_lets_wait_and_a_stopped_one_does_nothing() -> None:
    board = Board("balancer")
    board.upsert("a", "http://127.0.0.1:1")
    router = Router(board)
    with pytest.raises(RuntimeError, match="call start"):
        router.wait()
    with board.start(poll_interval=None) as same:
        assert same is board and board.is_running and "running" in repr(board)
        lease = router.wait()
        with pytest.raises(RuntimeError, match="started already"):
            board.start()
    assert not board.is_running
    lease.complete()
    told: list[Callable[[], object]] = [
        router.pick,
        router.wait,
        board.start,
        lambda: board.report("a", waiting=1),
        lambda: board.drain("a"),
        lambda: board.upsert("b", "http://b"),
    ]
    for call in told:
        with pytest.raises(RuntimeError, match="stopped"):
            call()
    board.stop()
    with pytest.raises(ValueError, match="clock"):
        Board(clock=lambda: 0.0).start()


def test_a_board_that_cannot_be_started_is_as_before() -> None:
    board = Board("balancer")
    lost: Any = {"tls": {"ca": "/no/such/ca"}}
    board.upsert("lost", "https://127.0.0.1:1", **lost)
    with pytest.raises(ValueError, match="lost: .*/no/such/ca"):
        board.start(poll_interval=None)
    assert not board.is_running and len(board) == 1 and Router(board).pick().upstream.id == "lost"
    board.upsert("lost", "https://127.0.0.1:1")
    with board.start(poll_interval=None):
        with pytest.raises(ValueError, match="lost: .*/no/such/ca"):
            board.upsert("lost", "https://127.0.0.1:1", **lost)
        assert Router(board).wait(timeout=HANG).upstream.id == "lost"


def test_what_is_told_to_a_running_board_is_seen_by_the_next_pick() -> None:
    with started() as board:
        router = Router(board)
        for name in "bcd":
            board.upsert(name, "http://127.0.0.1:1", labels={"name": name})
            assert router.pick(only=[name]).upstream.id == name
        board.remove("a")
        assert {upstream.id for upstream in board.upstreams()} == set("bcd")
        board.set_tree([n.require({"label": {"name": "c"}}), n.random()])
        assert router.pick().upstream.id == "c"
        with pytest.raises(paddler.ConfigError):
            board.upsert("e", "http://")
        assert board.drain("c") and not board.drain("z")
        with pytest.raises(paddler.Refused):
            router.pick()


def test_engines_are_polled(engines: Callable[..., Engine]) -> None:
    board = Board("gateway")
    board.upsert("one", engines("--model", "small", "--slots", "2").url)
    with board.start(poll_interval=0.02):
        board.upsert("two", engines("--face", "vllm", "--model", "large").url)
        router = Router(board)
        for model, name in [("small", "one"), ("large", "two")]:
            with router.wait(model=model, timeout=HANG) as lease:
                assert lease.upstream.id == name

        def unknown() -> bool:
            with pytest.raises(paddler.Refused) as told:
                router.pick(model="huge")
            return told.value.reason == "model_not_found"

        eventually("all have told their models", unknown)
        # Its slots are known, too.
        leases = [router.pick(model="small") for _ in range(2)]
        with pytest.raises(paddler.Busy):
            router.pick(model="small")
        del leases


@pytest.mark.parametrize("is_early", [True, False])
def test_an_engine_is_polled_over_http2(is_early: bool) -> None:
    board = Board("gateway")
    with socket.create_server(("127.0.0.1", 0)) as engine:
        engine.settimeout(HANG)
        url = f"http://127.0.0.1:{engine.getsockname()[1]}"
        if is_early:
            board.upsert("a", url, http2="always")
        with board.start(poll_interval=0.02):
            if not is_early:
                board.upsert("a", url, http2="always")
            connection, _ = engine.accept()
            with connection:
                connection.settimeout(HANG)
                assert connection.recv(14, socket.MSG_WAITALL) == b"PRI * HTTP/2.0"


def test_why_a_polled_engine_is_down_can_be_seen(engines: Callable[..., Engine]) -> None:
    up, down = engines("--model", "small"), engines("--model", "small")
    board = Board("gateway")
    board.upsert("up", up.url)
    board.upsert("down", down.url)

    def status(name: str) -> Any:
        (one,) = [one for one in board.statuses() if one["id"] == name]
        return one

    with board.start(poll_interval=0.02, poll_timeout=5.0):
        for name in ("up", "down"):
            eventually(f"{name} is ready", lambda: status(name).get("health") == "ready")
        down.stop()
        eventually("it is seen to be down", lambda: not status("down")["able"])
        told = status("down")
        assert told["failed_polls"] >= 2 and told["last_failure"].startswith("unreachable: "), told
        assert told["report_age_seconds"] > 0 and told["health"] == "ready", "its last word, with its age"
        assert status("up")["able"] and "last_failure" not in status("up")


def test_an_engine_is_polled_with_its_key(engines: Callable[..., Engine], tmp_path: Path) -> None:
    url = engines("--model", "small", "--slots", "3", "--api-key", "secret").url
    file = tmp_path / "key"
    file.write_text("secret\n")
    board = Board("gateway")
    keys: Any = {"named": {"api_key": "secret"}, "filed": {"api_key_file": str(file)}, "none": {}, "wrong": {"api_key": "x"}}
    for name, key in keys.items():
        board.upsert(name, url, **key)
    with pytest.raises(ValueError, match="visible ASCII"):
        board.upsert("bad", url, api_key="a\nkey")
    for name in ("dns+http://engines:8000", "DNS+http://engines:8000"):
        with pytest.raises(ValueError, match="upsert each address"):
            board.upsert("name", name)

    def limits() -> dict[str, int | None]:
        return {one["id"]: one.get("limit_weight") for one in board.statuses()}

    def refused(name: str) -> bool:
        told = next(one for one in board.statuses() if one["id"] == name)
        return any(one["found"].startswith("401: ") for one in told.get("degraded", []))

    with board.start(poll_interval=0.02):
        eventually("its slots are told", lambda: [limits()[name] for name in ("named", "filed")] == [3, 3])
        polled = {one["id"]: one for one in board.statuses()}
        eventually("all were polled", lambda: all("report_age_seconds" in one or one["failed_polls"] for one in board.statuses()))
        assert limits() == {"named": 3, "filed": 3, "none": None, "wrong": None}, polled
        eventually("a wrong key is told", lambda: all(refused(name) for name in ("none", "wrong")))
        assert not refused("named") and not refused("filed")


@pytest.mark.parametrize(
    ("prompt", "end", "order"),
    [
        (1, lambda lease: lease.complete(prompt_tokens=1, output_tokens=100_000), ["x1", "y1", "y2", "y3", "x2"]),
        # It was never sent, or nobody was there: it costs nothing.
        (1_000_000, lambda lease: lease.release(), ["x1", "y1", "x2", "y2", "y3"]),
        (1_000_000, lambda lease: lease.failed("unreachable"), ["x1", "y1", "x2", "y2", "y3"]),
    ],
)
def test_a_tenant_is_charged_for_what_was_used_and_not_for_an_estimate(
    prompt: int, end: Callable[[Lease], None], order: list[str]
) -> None:
    asked: set[str | None] = set()

    def judge(request: paddler.Facts, candidate: paddler.Candidate) -> bool:
        asked.add(request.session)
        return candidate.fits

    async def run(router: Router) -> None:
        served: list[str] = []

        async def take(name: str) -> None:
            tokens = prompt if name == "x1" else 1
            lease = await router.acquire(tenant=name[0], session=name, prompt_tokens=tokens, timeout=HANG)
            served.append(name)
            if name == "x1":
                end(lease)
            else:
                lease.complete(prompt_tokens=1, output_tokens=1)

        first = await router.acquire()
        tasks = []
        for name in ("x1", "y1", "x2", "y2", "y3"):
            tasks.append(asyncio.create_task(take(name)))
            while name not in asked:
                await asyncio.sleep(0.001)
        first.complete()
        await asyncio.gather(*tasks)
        assert served == order

    board = Board([n.require(judge), n.random()])
    board.upsert("a", "http://127.0.0.1:1", max_in_flight=1)
    with board.start(poll_interval=None, max_wait=HANG):
        asyncio.run(run(Router(board)))


def test_the_same_seed_gives_who_waits_the_same_places() -> None:
    def run(seed: int | None) -> list[str]:
        board = Board(n.random())
        for number in range(50):
            board.upsert(f"u{number}", "http://127.0.0.1:1")
        with board.start(poll_interval=None, seed=seed):
            router = Router(board)
            return [router.wait(timeout=HANG).upstream.id for _ in range(30)]

    assert run(7) == run(7)
    assert len({tuple(run(seed)) for seed in (7, 8, None, None)}) == 4


def test_who_cancels_hears_no_more() -> None:
    board = started()
    router, told = Router(board), list[tuple[object, object]]()

    def wait() -> paddler._paddler.Waiting:
        return router._wait(lambda lease, error: told.append((lease, error)), HANG, None)

    with board:
        first = router.pick()
        cancelled, stays = wait(), wait()
        for _ in range(2):
            cancelled.cancel()
        first.complete()
        eventually("the one who stays has the place", lambda: len(told) == 1)
        assert isinstance(told[0][0], Lease) and told[0][1] is None
        stays.cancel()
        holds = told.pop()
        waits = wait()
    # Whoever did not cancel hears of the end, once.
    waits.cancel()
    del holds
    assert [getattr(error, "reason", None) for _, error in told] == ["stopped"]


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_who_waits_in_the_main_thread_can_be_interrupted() -> None:
    ended = child("""
        import os, signal, threading, time, paddler
        board = paddler.Board("balancer")
        board.upsert("a", "http://127.0.0.1:1", max_in_flight=1)
        with board.start(poll_interval=None, max_wait=60):
            router = paddler.Router(board)
            lease = router.pick()
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            try:
                router.wait()
            except KeyboardInterrupt:
                print("interrupted")
            lease.complete()
            # The one who was interrupted has left the queue.
            assert router.wait(timeout=30).upstream.id == "a"
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


def test_who_waits_hears_of_it_when_the_board_is_stopped() -> None:
    async def run(board: Board) -> None:
        router = Router(board)
        lease = await router.acquire()
        waits = asyncio.create_task(router.acquire())
        await asyncio.sleep(0.02)
        board.stop()
        with pytest.raises(paddler.Unavailable) as told:
            await asyncio.wait_for(waits, HANG)
        assert told.value.reason == "stopped"
        lease.complete()

    asyncio.run(run(started()))


def test_a_place_is_given_back_that_came_in_the_turn_in_which_its_task_was_cancelled() -> None:
    async def run(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
        router, loop = Router(board), asyncio.get_running_loop()
        first = await router.acquire()
        task = asyncio.create_task(router.acquire())
        await asyncio.sleep(0.02)
        soon = loop.call_soon_threadsafe

        def and_cancel(call: Callable[..., object], *args: object, **rest: object) -> object:
            def both(*args: object) -> None:
                call(*args)
                task.cancel()

            return soon(both, *args)

        monkeypatch.setattr(loop, "call_soon_threadsafe", and_cancel)
        first.complete()
        with pytest.raises(asyncio.CancelledError):
            await task
        monkeypatch.undo()
        # The task is still there, and holds nothing.
        assert task.cancelled() and open_weight(board, "a") == 0

    with started() as board, pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(run(board, monkeypatch))


def test_tasks_get_their_places_in_the_order_in_which_they_asked() -> None:
    async def run(board: Board) -> None:
        router, served = Router(board), list[int]()

        async def take(number: int) -> None:
            lease = await router.acquire(timeout=HANG)
            served.append(number)
            lease.complete()

        for _ in range(10):
            first = await router.acquire()
            tasks = [asyncio.create_task(take(number)) for number in range(50)]
            await asyncio.sleep(0)
            first.complete()
            await asyncio.gather(*tasks)
            assert served == list(range(50))
            served.clear()

    with started(max_requests=100, max_wait=HANG) as board:
        asyncio.run(run(board))


def test_what_threads_tell_a_running_board_is_seen_by_their_own_next_pick() -> None:
    with started(slots=1_000_000) as board:
        router, stop = Router(board), threading.Event()

        def pick() -> None:
            while not stop.is_set():
                router.pick(only=["a"]).complete()

        threads = [threading.Thread(target=pick) for _ in range(3)]
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for thread in threads:
                thread.start()
            for number in range(300):
                name = f"u{number}"
                board.upsert(name, "http://127.0.0.1:1")
                router.pick(only=[name]).complete()
                assert board.report(name, waiting=1) and board.remove(name)
        finally:
            stop.set()
            sys.setswitchinterval(interval)
            for thread in threads:
                thread.join(HANG)


def test_who_leaves_the_queue_makes_room_in_it() -> None:
    async def run(router: Router) -> None:
        first = await router.acquire()
        leaves = asyncio.create_task(router.acquire(timeout=HANG))
        await asyncio.sleep(0.05)
        leaves.cancel()
        await asyncio.gather(leaves, return_exceptions=True)
        stays = asyncio.create_task(router.acquire(timeout=HANG))
        # Were the first still in it, the queue would be full.
        await asyncio.sleep(0.05)
        assert not stays.done()
        first.complete()
        (await stays).complete()

    with started(max_requests=1, max_wait=HANG) as board:
        asyncio.run(run(Router(board)))


def test_what_is_said_by_name_holds_for_who_waits_too() -> None:
    seen: list[tuple[object, ...]] = []

    def judge(request: paddler.Facts, candidate: paddler.Candidate) -> bool:
        seen.append((request.model, request.stream, request.prompt_tokens, request.tenant, request.session))
        return True

    board = Board([n.require(judge), n.random()])
    for name in "ab":
        board.upsert(name, "http://127.0.0.1:1")
    # Longer than one that could not take a request is left out for.
    with board.start(poll_interval=None, max_wait=0.6):
        router = Router(board)
        said: Any = {"model": "m", "stream": True, "prompt_tokens": 7, "tenant": "t", "session": "s"}
        for call in (router.pick, router.wait):
            lease = call(exclude=["a"], **said)
            assert lease.upstream.id == "b"
            lease.complete()
        with pytest.raises(paddler.Refused):
            router.wait(exclude=["a", "b"])
    assert seen and set(seen) == {("m", True, 7, "t", "s")}


def child(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=HANG
    )


def test_a_process_that_forgets_to_stop_ends_all_the_same() -> None:
    ended = child("""
        import asyncio, threading, paddler
        from paddler.nodes import require, random
        board = paddler.Board([require(lambda request, candidate: candidate.fits), random()])
        board.upsert("a", "http://127.0.0.1:1", max_in_flight=1)
        board.start(poll_interval=0.001)
        router = paddler.Router(board)
        lease = router.wait()
        def wait():
            try:
                router.wait()
            except paddler.Unavailable as refused:
                assert refused.reason == "stopped", refused
        threading.Thread(target=wait, daemon=True).start()
        async def leave():
            asyncio.create_task(router.acquire())
            await asyncio.sleep(0.05)
        asyncio.run(leave())
        print("done")
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_a_process_whose_board_asks_a_function_waits_for_it_at_its_end() -> None:
    ended = child("""
        import threading, time, paddler
        asked = threading.Event()
        def slow(request, candidate):
            if threading.current_thread() is not threading.main_thread():
                asked.set()
                until = time.monotonic() + 3
                while time.monotonic() < until:
                    pass
            return True
        board = paddler.Board([{"require": slow}, {"pick": "random"}])
        board.upsert("a", "http://127.0.0.1:1")
        board.start(poll_interval=None)
        def wait():
            try:
                paddler.Router(board).wait()
            except paddler.Refused:
                pass
        threading.Thread(target=wait, daemon=True).start()
        asked.wait()
        print("done")
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("how", ["interrupted", "by another thread"])
def test_a_process_waits_at_its_end_for_a_function_although_nobody_waits_for_the_stop(how: str) -> None:
    ended = child(f"""
        import os, signal, threading, time, paddler
        how, asked, told = {how!r}, threading.Event(), threading.Event()
        def slow(request, candidate):
            asked.set()
            told.wait()
            until = time.monotonic() + 1
            while time.monotonic() < until:
                time.sleep(0.01)
            return True
        board = paddler.Board([{{"require": slow}}, {{"pick": "random"}}])
        board.upsert("a", "http://127.0.0.1:1")
        board.start(poll_interval=None)
        waits = paddler.Router(board)._wait(print, None, None)
        asked.wait()
        if how == "interrupted":
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                board.stop()
            except KeyboardInterrupt:
                pass
        else:
            threading.Thread(target=board.stop, daemon=True).start()
            while board.is_running:
                time.sleep(0.001)
        del board
        waits.cancel()
        told.set()
        print("done")
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.skipif(os.name == "nt", reason="signals are sent otherwise there")
def test_who_tells_a_board_that_waits_for_a_function_can_be_interrupted() -> None:
    ended = child("""
        import os, signal, threading, paddler
        asked, mine = threading.Event(), threading.Lock()
        def judge(request, candidate):
            asked.set()
            with mine:
                return True
        board = paddler.Board([{"require": judge}, {"pick": "random"}])
        board.upsert("a", "http://127.0.0.1:1")
        board.start(poll_interval=None)
        with mine:
            waits = paddler.Router(board)._wait(lambda lease, error: None, None, None)
            asked.wait()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                board.drain("a")
            except KeyboardInterrupt:
                print("interrupted")
        board.publish()
        assert board.statuses()[0]["draining"], "it was told all the same"
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_makes_boards_of_its_own() -> None:
    ended = child("""
        import os, warnings, paddler
        warnings.simplefilter("ignore")
        plain = paddler.Board("balancer")
        running = paddler.Board("balancer").start(poll_interval=None)
        for board in (plain, running):
            board.upsert("a", "http://127.0.0.1:1")
        router = paddler.Router(plain)
        pid = os.fork()
        if pid == 0:
            assert router.pick().upstream.id == "a"
            try:
                paddler.Router(running).wait()
            except RuntimeError as error:
                assert "fork" in str(error), error
            else:
                os._exit(1)
            running.stop()
            with plain.start(poll_interval=None):
                assert router.wait().upstream.id == "a"
            raise SystemExit(0)
        assert os.waitpid(pid, 0)[1] == 0
        assert paddler.Router(running).wait().upstream.id == "a"
        print("done")
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_can_use_a_board_that_another_thread_was_telling() -> None:
    ended = child("""
        import os, signal, threading, warnings, paddler
        warnings.simplefilter("ignore")
        board, stop = paddler.Board("balancer"), threading.Event()
        board.upsert("a", "http://127.0.0.1:1")
        def tell():
            while not stop.is_set():
                for number in range(1_000):
                    board.upsert(f"u{number}", "http://127.0.0.1:1")
                    board.publish()
                    if stop.is_set():
                        break
        threads = [threading.Thread(target=tell) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                board.upsert("z", "http://127.0.0.1:1")
                paddler.Router(board).pick(only=["z"]).release()
                os._exit(0)
            ended = os.waitpid(pid, 0)[1]
            if ended:
                break
        stop.set()
        print("ended with", ended)
    """)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ended with 0\n", "")


def test_what_a_wait_has_raised_is_gone_with_its_last_name() -> None:
    raised: list[weakref.ref[Exception]] = []

    async def run(router: Router) -> None:
        try:
            await router.acquire(timeout=0)
        except paddler.Busy as busy:
            raised.append(weakref.ref(busy))

    with started() as board:
        router = Router(board)
        lease = router.pick()
        gc.collect()
        gc.disable()
        try:
            asyncio.run(run(router))
            try:
                router.wait(timeout=0)
            except paddler.Busy as busy:
                raised.append(weakref.ref(busy))
            eventually("both are gone", lambda: [one() for one in raised] == [None, None])
        finally:
            gc.enable()
        lease.complete()


def test_who_forgets_that_he_waits_leaves_the_queue() -> None:
    told: list[object] = []
    with started(max_requests=1, max_wait=HANG) as board:
        router = Router(board)
        lease = router.pick()
        waits = router._wait(lambda lease, error: told.append(lease), None, None)
        eventually("it stands in the queue", lambda: refused(router))
        del waits
        eventually("it has left", lambda: not refused(router))
        lease.complete()
        assert router.wait(timeout=HANG).upstream.id == "a" and not told


def test_boards_that_are_forgotten_end_their_threads() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0

    before = threads()
    for _ in range(20):
        Router(started()).wait().complete()
    gc.collect()
    eventually("no thread is left", lambda: threads() <= before + 1)
