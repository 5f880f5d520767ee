"""What does a pick cost from Python?

    python benches/pick.py

A pick and the end of its lease, for a model that all serve, by the tree `gateway`. What it costs in Rust is said by
`cargo bench -p paddler-benches --bench scheduling -- pick/gateway`. Each figure is the best of several rounds, since a busy machine only ever adds to it. Build with
`maturin build --release`: a build for debugging is many times slower.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import paddler
from paddler import nodes as n

ROUNDS = 15


def router(tree: object, upstreams: int) -> paddler.Router:
    board = paddler.Board(tree)  # type: ignore[arg-type]
    for place in range(upstreams):
        board.upsert(f"upstream-{place}", "http://127.0.0.1:8080", models=["llama"])
    for place in range(upstreams):
        noise = (place * 2_654_435_761 & 0xFFFF_FFFF) >> 16
        board.report(f"upstream-{place}", health="ready", slots_total=8, slots_busy=noise % 8, waiting=0)
    board.publish()
    return paddler.Router(board, seed=1)


def best(run: Callable[[int], float], picks: int) -> float:
    return min(run(picks) for _ in range(ROUNDS))


def python(router: paddler.Router) -> Callable[[int], float]:
    def run(picks: int) -> float:
        pick = router.pick
        began = time.perf_counter()
        for _ in range(picks):
            pick(model="llama", prompt_tokens=300).complete()
        return (time.perf_counter() - began) / picks

    return run


def held(router: paddler.Router) -> Callable[[int], float]:
    def run(picks: int) -> float:
        began = time.perf_counter()
        for _ in range(picks):
            with router.pick(model="llama", prompt_tokens=300) as lease:
                lease.sent()
                lease.upstream.url
                lease.first_byte()
        return (time.perf_counter() - began) / picks

    return run


def line(what: str, *seconds: float) -> None:
    print(f"{what:44}" + "".join(f"{one * 1e6:12.2f}" for one in seconds))


def spin(stop: threading.Event) -> None:
    while not stop.is_set():
        pass


def main() -> None:
    print(f"Python {sys.version.split()[0]}, paddler {paddler.__version__}; microseconds for a pick and the end of its lease")
    print(f"{'upstreams':44}{'picked':>12}{'with, used':>12}")
    for upstreams, picks in [(1, 20_000), (100, 20_000), (1_000, 4_000), (10_000, 400)]:
        asked = router("gateway", upstreams)
        line(str(upstreams), best(python(asked), picks), best(held(asked), picks))
    for what, tree in [
        ("100, and a cost in Python", n.least(lambda request, candidate: 1.0)),
        ("100, and one in Python asked for all at once", n.least(n.whole(lambda request, all: [1.0] * len(all)))),
    ]:
        line(what, best(python(router(tree, 100)), 200))
    stop = threading.Event()
    spins = threading.Thread(target=spin, args=(stop,))
    spins.start()
    # The mean, since what is waited for is what is asked. From 10,000 on, a pick lets others run.
    for upstreams, picks in [(100, 20_000), (9_999, 400), (10_000, 400)]:
        line(f"{upstreams}, while another thread computes", python(router("gateway", upstreams))(picks))
    stop.set()
    spins.join()


if __name__ == "__main__":
    main()
