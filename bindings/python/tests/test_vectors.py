"""Does Python decide as the vectors say, and as Rust does?

The vectors, and what of them is not built, are the core's own files. With ``PADDLER_VECTOR_OUTCOMES`` what came out is written
to a file, as the core's run does, so that both can be compared.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import paddler
from conftest import ROOT
from paddler import nodes as n

HERE = ROOT / "paddler-core/tests/data/vectors"
ENGINES = {
    "sglang": {
        "running": ["sglang:num_running_reqs"],
        "waiting": ["sglang:num_queue_reqs"],
        "kv_cache_usage": ["sglang:token_usage"],
    },
    "triton-tensorrt-llm": {
        "running": ["nv_trt_llm_request_metrics{request_type=scheduled}"],
        "waiting": ["nv_inference_pending_request_count"],
        "kv_cache_usage": ["nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}"],
    },
}
NOT_BUILT = json.loads((HERE / "not_built.json").read_text())
VECTORS = json.loads(Path(os.environ.get("PADDLER_VECTORS", HERE / "scheduling.json")).read_text())["vectors"]

Vector = dict[str, Any]


@n.whole
def fails(request: paddler.Facts, candidates: list[paddler.Candidate]) -> list[bool]:
    """Cannot judge, whatever it is given: not even nobody."""
    raise ValueError("it always fails")


def critical(request: paddler.Facts, candidate: paddler.Candidate) -> bool:
    return request.priority >= 0


def tree(name: str, params: dict[str, Any]) -> paddler.Tree:
    """The tree that a vector names; a filter is the tree of requiring it."""
    if name == "seed_tree":
        names = {
            "low_queue": "queueing_threshold_lora",
            "shed_queue": "queue_threshold_critical",
            "shed_kv_cache": "kv_cache_threshold",
        }
        return paddler.Tree({"seed": {ours: params[theirs] for ours, theirs in names.items() if theirs in params}})
    filters: dict[str, n.Filter] = {
        "always_failing_node": fails,
        "least_queuing": "least_queue",
        "least_kv_cache": "least_kv_cache",
        "low_queueing_strict": {"queue_depth": {"below": params.get("threshold", 50)}},
        "low_queueing_inclusive": {"queue_depth": {"at_most": params.get("threshold", 128)}},
        "lora_affinity": "lora_active",
        "can_accept_new_lora": "lora_room",
        "low_lora_cost": "lora_low_cost",
        "has_capacity": {
            "all": [
                {"queue_depth": {"at_most": params.get("queue_threshold", 5)}},
                {"kv_cache": {"at_most": params.get("kv_threshold", 0.8)}},
            ]
        },
        "critical_request": critical,
    }
    return paddler.Tree([n.require(filters[name]), n.random()], signals="reported")


def scheduled(vector: Vector) -> object:
    params = vector.get("params") or {}
    board = paddler.Board(tree(vector["filter"], params), clock=lambda: 0.0)
    pods = vector.get("pods") or []
    for pod in pods:
        board.upsert(pod["name"], "http://127.0.0.1:1")
        waiting = pod.get("waiting_models") or [] if params.get("count_waiting") else []
        adapters: Any = {"max": pod.get("max_active_models") or 0, "running": pod.get("active_models") or []}
        adapters["waiting"] = waiting
        board.report(
            pod["name"],
            waiting=pod.get("waiting_queue") or 0,
            running=pod.get("running"),
            kv_cache_usage=pod.get("kv_cache_usage") or 0.0,
            adapters=adapters,
        )
    board.publish()
    request = vector.get("request") or {}
    standard = 0 if request.get("critical", True) else -1
    model = request.get("target_model", request.get("model"))
    why = paddler.Router(board).explain(model=model, priority=request.get("priority", standard), seed=1)
    expect = vector["expect"]
    assert set(why.survivors) == set(expect["pods"])
    assert set(why.picked) <= set(why.survivors) and bool(why.picked) == bool(expect["pods"])
    match expect.get("error"):
        case "resource_exhausted":
            assert why.outcome == "shed"
        case "filter_error":
            assert why.reason == "filter_failed" and "it always fails" in why.summary
        case error:
            assert error is None
    if any("metrics" in pod and pod["metrics"] is None for pod in pods):
        pytest.skip("theirs takes who was never scraped for idle: run with zeros, and that is no agreement")
    return {"refused": why.reason} if why.reason else {"pods": sorted(why.survivors)}


def metrics(vector: Vector) -> object:
    params, expect = vector["params"], vector["expect"]
    if vector["filter"] == "labels_match":
        wanted = ",".join(f"{name}={value}" for name, value in params["spec_labels"].items())
        labels = ",".join(f'{name}="{value}"' for name, value in params["series_labels"].items())
        selector = f"m{{{wanted}}}" if wanted else "m"
        found = paddler.read_vllm(f"m{{{labels}}} 1\n".encode(), names={"waiting": [selector]})
        match = found.as_dict()["waiting"] is not None
        assert match == expect["match"]
        return {"match": match}
    if "by_engine_label" in expect:
        pytest.skip("the engine is told by the spec of an upstream")
    names = None
    if "engine" in params:
        names = ENGINES[params["engine"]]
    elif "spec" in params:
        names = {"waiting": [params["spec"]]}
    elif "mapping" in params:
        ours = {"queue": "waiting", "kv": "kv_cache_usage", "lora": "adapters"}
        names = {ours[theirs]: [name] for theirs, name in params["mapping"].items() if theirs in ours}
    said = paddler.read_vllm(params["text"].encode(), names=names).as_dict()
    degraded = said.get("degraded", [])
    assert isinstance(degraded, list)
    if "spec" in params:
        assert said["waiting"] == expect.get("value")
    else:
        for theirs, our in [("running", "running"), ("waiting_queue", "waiting"), ("kv_cache_usage", "kv_cache_usage")]:
            if theirs in expect:
                # Theirs has zero for unknown.
                assert (said[our] or 0) == expect[theirs]
    adapters = said["adapters"]
    if isinstance(adapters, dict):
        adapters = {**adapters, "running": sorted(adapters["running"]), "waiting": sorted(adapters["waiting"])}
        if "active_models" in expect:
            assert set(adapters["running"] + adapters["waiting"]) == set(expect["active_models"])
    if "engine" not in params:
        # Of other engines there is a part of a page.
        assert bool(degraded) == bool(expect.get("error") or expect.get("errors"))
    known = {name: said[name] for name in ("running", "waiting", "kv_cache_usage")}
    return {**known, "adapters": adapters, "degraded": len(degraded)}


@pytest.fixture(scope="session")
def outcomes() -> Any:
    lines: list[str] = []
    yield lines
    if path := os.environ.get("PADDLER_VECTOR_OUTCOMES"):
        Path(path).write_text("".join(lines))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_the_vector_holds(vector: Vector, outcomes: list[str]) -> None:
    family = vector["family"]
    if vector["id"] in NOT_BUILT["deviations"]:
        pytest.skip(f"ours: {NOT_BUILT['deviations'][vector['id']]}")
    if family in NOT_BUILT["families"] or vector.get("filter") in NOT_BUILT["names"]:
        pytest.skip("not built")
    assert family in {"decision_tree", "filter", "ext_proc_schedule", "metrics_parse"}
    outcome = metrics(vector) if family == "metrics_parse" else scheduled(vector)
    outcomes.append(json.dumps({"name": vector["id"], "outcome": outcome}) + "\n")
