"""Why did a request go where it went, or nowhere?"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple


class Step(NamedTuple):
    """One filter's work on the way."""

    node: int
    title: str
    before: int
    """How many candidates came."""
    after: int
    """How many were left."""
    removed: list[tuple[str, float | None]]
    """Who went out, with the value that was judged by, where there is one."""
    error: str | None = None
    """What it said if it could not judge."""


class Explanation:
    """All that a walk through the tree did."""

    def __init__(self, data: dict[str, Any], table: str) -> None:
        self._data = data
        self.table = table
        """The same to be read by people: a line for each node."""
        self.summary: str = data["summary"]
        """All of it in a line."""
        self.model: str | None = data.get("model")
        """The model that is meant. ``None``: any."""
        self.asked: str | None = data.get("asked")
        """The name that was asked for, where that stands for the model."""
        self.path: list[tuple[int, str]] = [(node["node"], node["title"]) for node in data["nodes"]]
        """The nodes that were walked, by number and title."""
        self.steps = [Step(**node) for node in data["nodes"] if "after" in node]
        self.survivors: list[str] = data["survivors"]
        """Who the leaf could choose among."""
        self.picked: list[str] = data["picked"]
        self.outcome: Literal["picked", "later", "shed", "never"] = data["outcome"]
        self.reason: str | None = data.get("reason")
        """Why nobody was picked."""

    def as_dict(self) -> dict[str, Any]:
        """The same as data for JSON. What is not known, or is none, is left out."""
        return self._data

    def __str__(self) -> str:
        return self.summary

    def __repr__(self) -> str:
        return f"<paddler.Explanation: {self.summary}>"
