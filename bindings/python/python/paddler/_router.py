"""How does a request wait for a place?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypedDict

from . import _paddler
from ._paddler import Facts, Lease, Upstream

if TYPE_CHECKING:
    from typing_extensions import Unpack

_SIGNALS = 0.5
"""How often who waits looks for Ctrl-C where nothing else wakes him for it, as on Windows."""


class Asked(TypedDict, total=False):
    """What a pick is asked by name; each outweighs what the facts say."""

    model: str | None
    prompt_tokens: int | None
    weight: int | None
    task: str | None
    priority: int | None
    tenant: str | None
    session: str | None
    stream: bool | None
    only: Iterable[str | Upstream] | None
    exclude: Iterable[str | Upstream] | None


class AskedNow(Asked, total=False):
    """The same of one that does not wait."""

    seed: int | None


class Router(_paddler.Router):
    """Decides where requests go, by what is known on a board.

    ``pick`` answers at once. ``wait`` and ``acquire`` stand in the board's queue until there is room, for which the board has
    to be started. Any number of threads may use one router.
    """

    def wait(self, facts: Facts | None = None, *, timeout: float | None = None, **asked: Unpack[Asked]) -> Lease:
        """Like ``pick``, but waits in turn for room: ``timeout`` seconds at most, and never longer than the board's
        ``max_wait``. Other threads run meanwhile.

        Raises ``Refused`` when nobody had room in time, or it became known that nobody will.
        """
        told: SimpleQueue[tuple[Lease | None, BaseException | None]] = SimpleQueue()
        waiting = self._wait(lambda lease, error: told.put((lease, error)), timeout, facts, **asked)
        try:
            while True:
                try:
                    lease, error = told.get(timeout=_SIGNALS)
                    break
                except Empty:
                    pass
        finally:
            # Who was interrupted does not listen any more, and the place is given back.
            waiting.cancel()
        if lease is not None:
            return lease
        assert error is not None
        try:
            raise error
        finally:
            # It knows this frame, and must not be known by it.
            del error

    async def acquire(
        self, facts: Facts | None = None, *, timeout: float | None = None, **asked: Unpack[Asked]
    ) -> Lease:
        """The same for an event loop. Cancelled, it leaves the queue, and a place that was just found goes to the next."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Lease] = loop.create_future()

        waiting = self._wait(partial(_done, loop, future), timeout, facts, **asked)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # It got the place in the very turn in which it was cancelled.
                future.result().release()
            raise
        finally:
            waiting.cancel()
            # What it raised knows this frame, and must not be known by it.
            del future


def _done(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Lease], lease: Lease | None, error: BaseException | None) -> None:
    try:
        loop.call_soon_threadsafe(_settle, future, lease, error)
    except RuntimeError:  # The loop is closed: nobody wants the place any more.
        if lease is not None:
            lease.release()


def _settle(future: asyncio.Future[Lease], lease: Lease | None, error: BaseException | None) -> None:
    if future.done():
        if lease is not None:
            lease.release()
    elif lease is not None:
        future.set_result(lease)
    elif error is not None:
        future.set_exception(error)
