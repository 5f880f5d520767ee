"""How is a tree written in Python?

Each function makes one node of the table in the crate docs of ``paddler_core::config::tree``, in the very form that YAML has,
so that both give the same tree. A list is a sequence::

    from paddler import Tree
    from paddler.nodes import least, prefer, require

    tree = Tree([require("model"), require("slot"), prefer({"label": {"zone": "a"}}), least("prefill_product")])

A filter, cost or condition is a name, a mapping of a name to its parameters, or a function of yours: ``f(request, candidate)``,
which returns a ``bool`` for a filter, and a number or ``None`` (not known) for a cost; ``f(request)``, which returns a ``bool``,
for a condition. One that compares candidates is marked with ``whole``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar, Union

FilterFunction: TypeAlias = Union[Callable[..., bool], Callable[..., Sequence[bool]]]
CostFunction: TypeAlias = Union[Callable[..., "float | None"], Callable[..., Sequence["float | None"]]]
Filter: TypeAlias = Union[str, Mapping[str, object], FilterFunction]
Cost: TypeAlias = Union[str, Mapping[str, object], CostFunction]
ConditionFunction: TypeAlias = Callable[..., bool]
Condition: TypeAlias = Union[str, Mapping[str, object], ConditionFunction]
Node: TypeAlias = Union[Mapping[str, object], Sequence["Node"]]

__all__ = [
    "Condition",
    "ConditionFunction",
    "Cost",
    "CostFunction",
    "Filter",
    "FilterFunction",
    "Node",
    "branch",
    "by_model",
    "first_of",
    "gate",
    "least",
    "pick",
    "prefer",
    "random",
    "reject",
    "rendezvous",
    "require",
    "split",
    "two_choices",
    "when",
    "whole",
]

_Answer = TypeVar("_Answer")


def whole(function: Callable[..., Sequence[_Answer]]) -> Callable[..., Sequence[_Answer]]:
    """Marks a filter or cost that is asked once for all candidates: ``f(request, candidates)``, with an answer for each."""
    setattr(function, "_paddler_of_all", True)
    return function


def _with(node: dict[str, object], **parts: object) -> Node:
    named = {name.rstrip("_"): part for name, part in parts.items() if part is not None}
    return {**node, **named}


def require(filter: Filter, else_: Literal["never", "later", "shed"] | None = None) -> Node:
    """Narrows; when nobody is left, ends with the class (refuse for good, wait, refuse for now), by default the filter's own."""
    return _with({"require": filter}, else_=else_)


def prefer(filter: Filter) -> Node:
    """Narrows; when nobody would be left, goes on as if nothing was said."""
    return {"prefer": filter}


def branch(filter: Filter, then: Node, else_: Node | None = None) -> Node:
    """Somebody passes: ``then`` with those. Nobody: ``else_`` with all."""
    return _with({"branch": filter, "then": then}, else_=else_)


def gate(
    then: Node,
    else_: Node | None = None,
    *,
    any: Filter | None = None,
    all: Filter | None = None,
    mean: Cost | None = None,
    below: float | None = None,
) -> Node:
    """A question about the whole pool, which narrows nothing: whether any or all pass, or the mean of a cost is below."""
    means = None if mean is None else {"cost": mean, "below": below}
    return _with({"gate": _with({}, any=any, all=all, mean=means), "then": then}, else_=else_)


def when(condition: Condition, then: Node, else_: Node | None = None) -> Node:
    """A question about the request alone."""
    return _with({"when": condition, "then": then}, else_=else_)


def first_of(*alternatives: Node | tuple[Node, str]) -> Node:
    """The first that does not refuse. ``(node, "2s")`` waits so long for it before it goes on."""
    return {"first_of": [{"tree": one[0], "patience": one[1]} if isinstance(one, tuple) else one for one in alternatives]}


def split(*parts: tuple[int, Node]) -> Node:
    """One of these, by weight; drawn once for each request."""
    return {"split": [{"weight": weight, "tree": node} for weight, node in parts]}


def by_model(models: Mapping[str, Node], else_: Node | None = None) -> Node:
    """By the model or adapter that is asked for."""
    return _with({"by_model": models}, else_=else_)


def reject(reason: str, class_: Literal["never", "later", "shed"] = "never") -> Node:
    """Ends the walk, also inside ``first_of``."""
    return {"reject": {"class": class_, "reason": reason}}


def pick(how: Literal["random"] | Mapping[str, object]) -> Node:
    """Picks as YAML says it: ``"random"``, or a mapping such as ``{"least": cost}``, for which ``least`` is short."""
    return {"pick": how}


def least(cost: Cost) -> Node:
    """Picks the lowest cost; ties at random."""
    return {"pick": {"least": cost}}


def two_choices(cost: Cost) -> Node:
    """Picks the lower cost of two that are drawn."""
    return {"pick": {"two_choices": cost}}


def random() -> Node:
    """Picks any, each as likely."""
    return {"pick": "random"}


def rendezvous(key: Literal["session", "tenant", "model"]) -> Node:
    """Picks always the same for the same key, as long as it is there."""
    return {"pick": {"rendezvous": key}}
