"""What tests are made of: simulated engines, and ways to wait."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddler import Board

ROOT = Path(__file__).resolve().parents[3]

# Some tests interrupt themselves, or a process of their own. Whoever starts all of them in the background has them ignore that.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: Longer than anything here takes: only what hangs meets it.
HANG = 60.0


def eventually(what: str, holds: Callable[[], bool]) -> None:
    """Waits until something is so."""
    end = time.monotonic() + HANG
    while not holds():
        assert time.monotonic() < end, f"it never became so: {what}"
        time.sleep(0.002)


def open_weight(board: Board, id: str) -> int:
    """Our own open weight there, with what settles."""
    status = board.status(id)
    assert status is not None
    return status["open_weight"]


def service(board: Board, id: str) -> str:
    """Whether it is sent work, by how its requests went."""
    status = board.status(id)
    assert status is not None
    return status["service"]["state"]


class Engine:
    """A simulated inference engine, over real HTTP."""

    def __init__(self, *arguments: str) -> None:
        program = os.environ.get("PADDLER_ENGINE", str(ROOT / "target/debug/paddler-engine"))
        if not Path(program).exists():
            pytest.skip("no simulated engine: cargo build -p paddler-engine, or name it in PADDLER_ENGINE")
        command = [program, "--prefill-tokens-per-second", "inf", "--decode-tokens-per-second", "inf", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def engines() -> Iterator[Callable[..., Engine]]:
    """Starts engines that end with the test."""
    running: list[Engine] = []

    def start(*arguments: str) -> Engine:
        running.append(Engine(*arguments))
        return running[-1]

    yield start
    for engine in running:
        engine.stop()
