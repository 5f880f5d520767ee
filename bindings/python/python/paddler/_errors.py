"""How is it told that there is nobody, or that what was written is unsound?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ._explanation import Explanation


class Fault(NamedTuple):
    """One thing that is wrong with what was written: a tree, an upstream, a report, or the names for ``read_vllm``."""

    path: str
    """Which part: ``tree[2].then.branch.queue_depth.below``."""
    line: int | None
    """Where in the text, from 1; ``None`` for what was not read from text."""
    column: int | None
    """The character in the line, from 1."""
    problem: str
    """What is wrong."""
    mend: str | None
    """What to do about it, where that can be said."""


class ConfigError(ValueError):
    """All that is wrong with what was written at once, one line for each fault."""

    def __init__(
        self, message: str, faults: list[tuple[str, int | None, int | None, str, str | None]], more: int = 0
    ) -> None:
        super().__init__(message)
        self.faults = [Fault(*fault) for fault in faults]
        """The faults in the order of the text, a thousand at most."""
        self.more = more
        """How many there are beyond those."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), [tuple(fault) for fault in self.faults], self.more)


def unsound(message: str, data: dict[str, Any]) -> ConfigError:
    """The exception for the core's faults; called by the extension."""
    faults = []
    for fault in data["faults"]:
        place = fault["place"] or {"line": None, "column": None}
        faults.append((fault["path"], place["line"], place["column"], fault["problem"], fault["mend"]))
    return ConfigError(message, faults, data["more"])


class Refused(Exception):
    """Nobody gets the request. Answer your own client with ``status``, ``reason`` and ``retry_after``."""

    def __init__(
        self,
        message: str,
        status: int,
        reason: str,
        retry_after: float | None,
        should_retry: bool,
        node: int | None,
    ) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status that says who can mend it."""
        self.reason = reason
        """A stable word, such as ``slots_busy``."""
        self.retry_after = retry_after
        """When to ask again, in seconds, where that helps."""
        self.should_retry = should_retry
        """Whether the same request may do better another time."""
        self.node = node
        """The node of the tree that found nobody, if one did."""
        self.explanation: Explanation | None = None
        """What the walk did, where the pick was asked to explain itself. It stays behind when this is pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        told = (str(self), self.status, self.reason, self.retry_after, self.should_retry, self.node)
        return type(self), told


class BadRequest(Refused):
    """The request itself is wrong (400)."""


class ModelNotFound(Refused):
    """No upstream serves the model (404)."""


class Busy(Refused):
    """Somebody could serve it, and has no room now, or it was shed (429)."""


class Unavailable(Refused):
    """Nobody can serve it: no upstream, all unhealthy, drained, or not known yet (503)."""


class NodeFailed(Refused):
    """A filter, cost or condition written in Python could not judge (500): it raised, or its answer is none. What it raised is the
    ``__cause__``."""


_KINDS: dict[int, type[Refused]] = {400: BadRequest, 404: ModelNotFound, 429: Busy, 500: NodeFailed, 503: Unavailable}


def refused(
    message: str, status: int, reason: str, retry_after: float | None, should_retry: bool, node: int | None
) -> Refused:
    """The exception for a status; called by the extension."""
    return _KINDS.get(status, Refused)(message, status, reason, retry_after, should_retry, node)
