"""How are names of models written that stand for others?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict


class ModelTarget(TypedDict):
    """One of several models that a name stands for. Of the weights only the proportion counts: 0 to 1,000,000."""

    model: str
    weight: int


class ModelRule(TypedDict, total=False):
    """What a name stands for (``target``, or ``targets`` with their weights; neither: itself), and what is special about its
    requests, in the words of a config file: times are text with a unit, such as ``30s``."""

    target: str
    targets: Sequence[ModelTarget]
    priority: int | Literal["high", "standard", "sheddable"]
    max_wait: str
    rewrite_response: bool
    timeouts: Mapping[Literal["first_byte", "idle", "whole"], str]
    fallback: Sequence[str]
    patience: str


class ModelTimes(TypedDict):
    """How long steps may take, in seconds. ``None``: what holds for all."""

    first_byte: float | None
    idle: float | None
    whole: float | None


class ModelSettings(TypedDict):
    """What is special about a request, by the name that it asks for and the model that is meant; ``None`` where nothing is.
    ``max_wait`` is in seconds: what to give to ``wait`` and ``acquire`` as ``timeout``."""

    priority: int | None
    max_wait: float | None
    rewrite_response: bool | None
    timeouts: ModelTimes
