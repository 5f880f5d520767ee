"""A proxy of one's own, in FastAPI: Paddler says where each request goes, and the app sends it there.

    pip install fastapi httpx uvicorn
    python examples/fastapi_proxy.py gpu-1=http://10.0.0.3:8080 gpu-2=http://10.0.0.4:8080

It forwards POST under /v1, and nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

import paddler

TREE = """
tree:
  - require: model
  - require: healthy
  - prefer: {fresh: {max_age: 10s}}
  - require: slot
  - pick: {least: prefill_product}
"""


def create_app(upstreams: Mapping[str, str]) -> FastAPI:
    board = paddler.Board(paddler.Tree.from_yaml(TREE))
    for name, url in upstreams.items():
        board.upsert(name, url)
    router = paddler.Router(board)
    # A prompt may take minutes, and a stream has no end that we know.
    client = httpx.AsyncClient(timeout=httpx.Timeout(600.0, connect=2.0))

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Each worker process has a board of its own, started after the fork.
        with board.start(poll_interval=0.2, max_requests=100, max_wait=30.0):
            async with client:
                yield

    app = FastAPI(lifespan=lifespan)
    app.state.board = board

    @app.exception_handler(paddler.Refused)
    async def refused(request: Request, error: paddler.Refused) -> JSONResponse:
        headers = {"x-paddler-reason": error.reason}
        if error.retry_after is not None:
            headers["retry-after"] = str(max(1, round(error.retry_after)))
        return JSONResponse({"error": {"message": str(error), "code": error.reason}}, error.status, headers)

    @app.post("/v1/{path:path}")
    async def forward(path: str, request: Request) -> Response:
        body = await request.body()
        facts = paddler.Facts.from_body(f"/v1/{path}", body)
        tried: list[str] = []
        while True:
            lease = await router.acquire(facts, exclude=tried, session=request.headers.get("x-session-id"))
            send = client.build_request(
                "POST",
                f"{lease.upstream.url}/v1/{path}",
                content=body,
                # What is relayed as it comes must not come compressed: the client may not have asked for that.
                headers={"content-type": "application/json", "accept-encoding": "identity"},
            )
            lease.sent()
            try:
                answer = await client.send(send, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                # Nothing was sent, so it may go elsewhere; the others hear of it.
                lease.failed("unreachable")
                tried.append(lease.upstream.id)
                continue
            except httpx.TransportError as error:
                # It may have been worked on, so whether to ask again is the client's to say; the upstream's health hears of it.
                late = isinstance(error, httpx.TimeoutException)
                lease.failed("late" if late else "broke")
                lease.release()
                message = f"the upstream gave no answer: {type(error).__name__}"
                return JSONResponse({"error": {"message": message}}, 504 if late else 502)
            except BaseException:
                lease.release()
                raise
            break
        retry_after = answer.headers.get("retry-after")
        # It may be a date too, which says nothing here.
        after = float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
        lease.answered(answer.status_code, retry_after=after)

        async def relay() -> AsyncIterator[bytes]:
            # The lease is held until the last byte; a client that goes away makes it settle.
            try:
                with lease:
                    try:
                        async for chunk in answer.aiter_raw():
                            lease.first_byte()
                            yield chunk
                    except httpx.TransportError as error:
                        lease.failed("late" if isinstance(error, httpx.TimeoutException) else "cut_short")
                        raise
            finally:
                await answer.aclose()

        headers = {"x-upstream": lease.upstream.id}
        if retry_after is not None:
            headers["retry-after"] = retry_after
        return StreamingResponse(relay(), answer.status_code, headers, answer.headers.get("content-type"))

    return app


if __name__ == "__main__":
    if len(sys.argv) < 2 or not all("=" in argument for argument in sys.argv[1:]):
        sys.exit("usage: fastapi_proxy.py NAME=URL ...")
    named = dict(argument.split("=", 1) for argument in sys.argv[1:])
    uvicorn.run(create_app(named), port=8000)
