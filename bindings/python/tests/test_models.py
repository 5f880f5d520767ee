"""Is what is meant by a name of a model what the router would take for meant?"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import paddler
from paddler import Facts, ModelRules

RULES: Any = {
    "gpt-4o": "llama-3",
    "gpt-*": {"target": "small", "rewrite_response": True},
    "openai/*": "*",
    "chat": {"targets": [{"model": "llama-3", "weight": 90}, {"model": "llama-4", "weight": 10}]},
    "llama-3": {"priority": "high", "max_wait": "2s", "timeouts": {"first_byte": "30m"}},
}


def meant(rules: ModelRules, name: str, seed: int = 7) -> tuple[str | None, str | None]:
    facts = rules.resolve(Facts(model=name), seed=seed)
    return facts.asked, facts.model


def test_a_name_stands_for_what_its_rule_says_and_the_longest_beginning_counts() -> None:
    rules = ModelRules(RULES)
    for name, expected in [
        ("gpt-4o", ("gpt-4o", "llama-3")),
        ("gpt-4o-mini", ("gpt-4o-mini", "small")),
        ("openai/qwen", ("openai/qwen", "qwen")),
        ("llama-3", (None, "llama-3")),
        ("other", (None, "other")),
    ]:
        assert meant(rules, name) == expected, name
    assert rules.resolve(Facts()).model is None
    assert sorted(rules.aliases()) == ["chat", "gpt-4o"]
    assert rules.targets("chat") == ["llama-3", "llama-4"]
    assert rules.targets("gpt-5") == ["small"] and rules.targets("other") == []
    assert len(rules) == 5 and repr(rules).startswith("<paddler.ModelRules for chat, gpt-4o, llama-3, ")


def test_several_are_drawn_by_weight_and_the_same_seed_draws_the_same() -> None:
    rules = ModelRules(RULES, seed=1)
    drawn = [meant(rules, "chat", seed)[1] for seed in range(1000)]
    assert drawn == [meant(ModelRules(RULES), "chat", seed)[1] for seed in range(1000)]
    assert 850 < Counter(drawn)["llama-3"] < 950
    unseeded = Counter(rules.resolve(Facts(model="chat")).model for _ in range(1000))
    assert 850 < unseeded["llama-3"] < 950 and unseeded.total() == 1000
    once = rules.resolve(Facts(model="chat"))
    # What was drawn stays, so that a retry asks for the same model.
    assert all(rules.resolve(once).model == once.model and rules.resolve(once).asked == "chat" for _ in range(100))


def test_settings_are_those_of_the_name_and_then_of_the_model() -> None:
    rules = ModelRules(RULES)
    facts = rules.resolve(Facts(model="gpt-4o"))
    times = {"first_byte": 1800.0, "idle": None, "whole": None}
    expected = {"priority": 1, "max_wait": 2.0, "rewrite_response": None, "timeouts": times}
    assert rules.settings(facts) == expected
    assert facts.priority == 1
    assert rules.resolve(Facts(model="gpt-4o", priority=-5)).priority == -5
    assert rules.settings(Facts(model="gpt-5"))["rewrite_response"] is True
    nothing = {"first_byte": None, "idle": None, "whole": None}
    settings = {"priority": None, "max_wait": None, "rewrite_response": None, "timeouts": nothing}
    assert rules.settings(Facts(model="other")) == settings


def test_a_fallback_is_asked_for_in_order_and_no_other() -> None:
    rules = ModelRules({"big": {"fallback": ["small", "far"], "patience": "2s"}})
    facts = rules.resolve(Facts(model="big"))
    assert rules.fallback(facts) == (["small", "far"], 2.0)
    assert rules.fallback(Facts(model="small")) is None
    board = paddler.Board("gateway")
    board.upsert("a", "http://10.0.0.1:8000", models=["small"], traffic="fallback")
    board.report("a", running=0, waiting=0)
    board.publish()
    router = paddler.Router(board)
    with pytest.raises(paddler.ModelNotFound):
        router.pick(Facts(model="small"))
    with router.pick(rules.instead(facts, "small")) as lease:
        assert lease.upstream.id == "a"
    with pytest.raises(ValueError, match="does not fall back to \"other\""):
        rules.instead(facts, "other")


def test_a_pick_goes_to_who_has_what_is_meant_and_says_so() -> None:
    board = paddler.Board("gateway")
    for name in ["llama-3", "small"]:
        board.upsert(name, f"http://{name}:8080", models=[name])
        board.report(name, running=0, waiting=0)
    board.publish()
    router, rules = paddler.Router(board), ModelRules(RULES)
    for asked, upstream in [("gpt-4o", "llama-3"), ("gpt-5", "small")]:
        facts = rules.resolve(Facts.from_body("/v1/completions", f'{{"model": "{asked}", "prompt": "Hi"}}'.encode()))
        with router.pick(facts, explain=True) as lease:
            assert lease.upstream.id == upstream
            assert lease.explanation is not None and lease.explanation.asked == asked
    # Another model by name is not what stood for something.
    with router.pick(rules.resolve(Facts(model="gpt-4o")), model="small", explain=True) as lease:
        assert lease.explanation is not None and lease.explanation.asked is None
    with pytest.raises(paddler.ModelNotFound, match='"openai/x" \\(which is "x" here\\)'):
        router.pick(rules.resolve(Facts(model="openai/x")))


def test_all_that_is_wrong_is_told_at_once_with_its_place() -> None:
    wrong: Any = {
        "a": {"targets": [{"model": "b", "weight": 0}]},
        "*-mini": "c",
        "c": {"priorty": 1},
        "d": 7,
    }
    with pytest.raises(paddler.ConfigError) as told:
        ModelRules(wrong)
    paths = [fault.path for fault in told.value.faults]
    assert sorted(paths) == ['["*-mini"]', "a", "c.priorty", "d"], str(told.value)
    assert 'unknown key; did you mean "priority"?' in str(told.value)
