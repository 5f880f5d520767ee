"""What is told of an upstream? What is not known is left out: a missing figure is never a zero."""

from __future__ import annotations

from typing import Literal, TypedDict


class _Service(TypedDict):
    state: Literal["healthy", "ejected", "probing", "warming"]
    faults: int
    ejections: int


class ServiceStatus(_Service, total=False):
    """Whether an upstream is sent work, by what became of its requests: its ``state``, how many ``faults`` in a row it has so
    far, and how often it was ejected."""

    cause: str
    """Why it was ejected, while it is."""
    last_resort: bool
    """It is out, and gets what nobody else could serve all the same."""
    ends_in_seconds: float
    """When that ends."""
    paused_for_seconds: float
    """For how long it has asked to be left alone."""


class Degraded(TypedDict):
    """What a report should have said and did not: which ``signal``, where it was looked for, and what was found there."""

    signal: str
    expected: str
    found: str


class _Status(TypedDict):
    id: str
    url: str
    state: str
    draining: bool
    able: bool
    in_flight: int
    open_weight: int
    failed_polls: int


class Status(_Status, total=False):
    """How an upstream is. ``state``: in a word, such as ``healthy``, ``degraded``, ``unable`` or ``ejected``. ``able``:
    it is not known to be unable to serve, by its own word and its polls. ``in_flight``, ``open_weight``: our own
    requests there, and their weight with what settles. ``failed_polls``: since its last report."""

    labels: dict[str, str]
    traffic: Literal["named", "fallback"]
    """Which requests reach it, unless all do."""
    why: str
    """Why it is in its state, in a few words for people."""
    last_failure: str
    """Why the last poll failed, such as ``unreachable: connection refused``, if one has since the last report."""
    report_age_seconds: float
    """The time since it was asked for its last report."""
    service: ServiceStatus
    limit_weight: int
    """The most weight that may be open there."""
    health: Literal["ready", "loading", "failing"]
    """What it says of itself."""
    running: int
    waiting: int
    kv_cache_usage: float
    degraded: list[Degraded]
    """What its last report left out, such as everything that an engine keeps from a wrong key."""
