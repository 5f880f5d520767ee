"""Do the examples do what they say, with real requests to engines that are simulated?"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import paddler
from conftest import HANG, Engine, eventually, open_weight, service

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


@contextmanager
def served(app: Any) -> Iterator[str]:
    uvicorn = pytest.importorskip("uvicorn")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually("it listens", lambda: bool(server.started))
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(HANG)


def chat(model: str, tokens: int = 8, **more: Any) -> dict[str, Any]:
    return {"model": model, "max_tokens": tokens, "messages": [{"role": "user", "content": "Hi"}], **more}


def test_a_proxy_in_fastapi(engines: Callable[..., Engine]) -> None:
    pytest.importorskip("fastapi")
    httpx = pytest.importorskip("httpx")
    from fastapi_proxy import create_app

    tiny = {name: engines("--model", "tiny", "--slots", "2") for name in ("a", "b", "c")}
    upstreams = {name: engine.url for name, engine in tiny.items()}
    upstreams["large"] = engines("--face", "vllm", "--model", "large").url
    app = create_app(upstreams)
    with served(app) as url, httpx.Client(base_url=url, timeout=HANG) as client:
        path = "/v1/chat/completions"
        answer = client.post(path, json=chat("large"))
        assert (answer.status_code, answer.headers["x-upstream"]) == (200, "large")
        # More than there are slots: the others wait, and none is refused.
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: client.post(path, json=chat("tiny")), range(64)))
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["x-upstream"] for answer in answers} == {"a", "b", "c"}
        # One goes away: who meets that goes elsewhere.
        tiny["c"].stop()
        for _ in range(10):
            answer = client.post(path, json=chat("tiny"))
            assert (answer.status_code, answer.headers["x-upstream"] in {"a", "b"}) == (200, True)
        streamed = client.post(path, json=chat("tiny", stream=True))
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert streamed.text.rstrip().endswith("data: [DONE]")
        for body, status in [(chat("huge"), 404), ({"model": 7}, 400)]:
            refused = client.post(path, json=body)
            assert refused.status_code == status and refused.headers["x-paddler-reason"], refused.text
        eventually("all is given back", lambda: not any(open_weight(app.state.board, name) for name in upstreams))


def test_the_proxy_in_fastapi_tells_of_an_engine_that_breaks_off() -> None:
    pytest.importorskip("fastapi")
    httpx = pytest.importorskip("httpx")
    from fastapi_proxy import create_app

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def break_off() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)

        threading.Thread(target=break_off, daemon=True).start()
        bad = f"http://127.0.0.1:{listener.getsockname()[1]}"
        app = create_app({"a": bad, "b": bad})
        with served(app) as url, httpx.Client(base_url=url, timeout=HANG) as client:
            board = app.state.board
            for name in "ab":
                board.upsert(name, bad, models=["tiny"])

            def ejected() -> bool:
                answer = client.post("/v1/chat/completions", json=chat("tiny"))
                assert answer.status_code == 502, answer.text
                return any(service(board, name) != "healthy" for name in "ab")

            eventually("it is left out", ejected)


def test_the_proxy_in_fastapi_leaves_alone_who_asks_for_that_and_tells_the_client_when() -> None:
    pytest.importorskip("fastapi")
    httpx = pytest.importorskip("httpx")
    from fastapi_proxy import create_app

    heads: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def busy() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    heads.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 429 Busy\r\nretry-after: 7\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

        threading.Thread(target=busy, daemon=True).start()
        app = create_app({"a": f"http://127.0.0.1:{listener.getsockname()[1]}"})
        with served(app) as url, httpx.Client(base_url=url, timeout=HANG) as client:
            board = app.state.board
            board.upsert("a", board.upstreams()[0].url, models=["tiny"])
            answer = client.post("/v1/chat/completions", json=chat("tiny"))
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
            assert 2 < board.status("a")["service"]["paused_for_seconds"] <= 7
            (head,) = [head for head in heads if b"/v1/chat/completions" in head]
            assert b"accept-encoding: identity\r\n" in head.lower()


@pytest.mark.filterwarnings("ignore")
def test_a_stream_that_nobody_reads_to_its_end_holds_its_place_no_longer_than_is_said() -> None:
    pytest.importorskip("litellm")
    from litellm_strategy import PaddlerStrategy

    deployment = {"model_name": "tiny", "litellm_params": {"api_base": "http://127.0.0.1:1/v1"}, "model_info": {"id": "a"}}
    with paddler.Board("balancer").start(poll_interval=None) as board:
        strategy = PaddlerStrategy(board, [deployment], longest=-1.0)
        for _ in range(3):
            strategy.get_available_deployment("tiny", request_kwargs={})
        assert not strategy.leases
        strategy.longest = 60.0
        strategy.get_available_deployment("tiny", request_kwargs={})
        assert len(strategy.leases) == 1


@pytest.mark.filterwarnings("ignore")
def test_a_routing_strategy_of_litellm(engines: Callable[..., Engine]) -> None:
    litellm = pytest.importorskip("litellm")
    from litellm_strategy import PaddlerStrategy

    deployments = [
        {
            "model_name": "tiny",
            "litellm_params": {"model": "openai/tiny", "api_base": f"{engines('--slots', '1').url}/v1", "api_key": "none"},
            "model_info": {"id": name},
        }
        for name in ("a", "b")
    ]

    async def run(strategy: PaddlerStrategy, router: Any) -> None:
        messages = [{"role": "user", "content": "Hi"}]

        async def ask(**more: Any) -> str:
            answer = await router.acompletion(model="tiny", messages=messages, max_tokens=4, **more)
            if more.get("stream"):
                parts = [part.choices[0].delta.content or "" async for part in answer]
                return "".join(parts)
            return str(answer.choices[0].message.content)

        answers = await asyncio.gather(*(ask(stream=number % 3 == 0) for number in range(24)))
        assert all(answers)
        for _ in range(1000):
            if not strategy.leases:
                break
            await asyncio.sleep(0.01)
        assert not strategy.leases, "each lease has ended"
        with pytest.raises(Exception, match="no upstream serves the model"):
            await strategy.async_get_available_deployment("huge")

    with paddler.Board("gateway").start(poll_interval=0.2) as board:
        strategy = PaddlerStrategy(board, deployments)
        router = litellm.Router(model_list=deployments, num_retries=0)
        strategy.register(router)
        asyncio.run(run(strategy, router))
        # Without a loop, too.
        answer = router.completion(model="tiny", messages=[{"role": "user", "content": "Hi"}], max_tokens=4)
        assert answer.choices[0].message.content
        eventually("each lease has ended", lambda: not strategy.leases)
        # Another thread of LiteLLM's ends it, after it has taken it out.
        eventually("all is given back", lambda: not any(open_weight(board, name) for name in ("a", "b")))
