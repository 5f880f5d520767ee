"""Paddler as the routing strategy of a LiteLLM router: LiteLLM sends the requests, Paddler says to which deployment.

    pip install litellm

It is a module to import:

    deployments = [{"model_name": "llama", "model_info": {"id": "gpu-1"},
                    "litellm_params": {"model": "openai/llama", "api_base": "http://10.0.0.3:8080/v1", "api_key": "none"}}]
    with paddler.Board("gateway").start() as board:
        router = litellm.Router(model_list=deployments)
        PaddlerStrategy(board, deployments).register(router)
        router.completion(model="llama", messages=[{"role": "user", "content": "Hi"}])

The strategy implements ``CustomRoutingStrategyBase``; as a logger it hears how each request ended, and gives its lease back.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import litellm
from litellm.exceptions import NotFoundError, RateLimitError, ServiceUnavailableError
from litellm.integrations.custom_logger import CustomLogger
from litellm.types.router import CustomRoutingStrategyBase

import paddler

#: Under which key of a request's metadata its lease is noted.
NOTE = "paddler_lease"


class PaddlerStrategy(CustomRoutingStrategyBase, CustomLogger):
    """Picks deployments by a tree. ``board`` has to be started, so that requests can wait for room."""

    def __init__(
        self,
        board: paddler.Board,
        deployments: Sequence[Mapping[str, Any]],
        timeout: float = 30.0,
        longest: float = 3600.0,
    ) -> None:
        super().__init__()
        self.board = board
        self.router = paddler.Router(board)
        self.timeout = timeout
        #: LiteLLM does not tell of a stream that nobody reads to its end: after so many seconds its lease is given back.
        self.longest = longest
        self.leases: dict[str, tuple[float, paddler.Lease]] = {}
        for deployment in deployments:
            parameters = deployment["litellm_params"]
            # LiteLLM's addresses end with /v1, and Paddler's are those of the servers.
            url = parameters["api_base"].rstrip("/").removesuffix("/v1")
            board.upsert(deployment["model_info"]["id"], url, models=[deployment["model_name"]], extra=deployment)

    def register(self, router: Any) -> None:
        """Has the router ask here, and tell how each request ended. Newer routers have plugins; older ones a setter."""
        if hasattr(router, "register_plugin"):
            router.register_plugin(self)
        else:
            router.set_custom_routing_strategy(self)
        litellm.callbacks.append(self)

    async def async_get_available_deployment(  # type: ignore[override]
        self,
        model: str,
        messages: list[dict[str, str]] | None = None,
        input: str | list[Any] | None = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        try:
            lease = await self.router.acquire(timeout=self.timeout, **asked(model, messages, input))
        except paddler.Refused as error:
            raise told(error, model) from error
        return self._take(lease, request_kwargs)

    def get_available_deployment(  # type: ignore[override]
        self,
        model: str,
        messages: list[dict[str, str]] | None = None,
        input: str | list[Any] | None = None,
        specific_deployment: bool | None = False,
        request_kwargs: dict[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        try:
            lease = self.router.wait(timeout=self.timeout, **asked(model, messages, input))
        except paddler.Refused as error:
            raise told(error, model) from error
        return self._take(lease, request_kwargs)

    def _take(self, lease: paddler.Lease, request_kwargs: dict[str, Any] | None) -> Mapping[str, Any]:
        lease.sent()
        if request_kwargs is not None:
            number = uuid.uuid4().hex
            request_kwargs.setdefault("metadata", {})[NOTE] = number
            self.leases[number] = (time.monotonic(), lease)
            self._forget()
        deployment = lease.upstream.extra
        assert isinstance(deployment, Mapping)
        return deployment

    def _forget(self) -> None:
        """Gives back what is too old. The oldest stands first."""
        now = time.monotonic()
        for number, (since, lease) in list(self.leases.items()):
            if now - since <= self.longest:
                break
            self.leases.pop(number, None)
            lease.release()

    def _lease(self, kwargs: Mapping[str, Any]) -> paddler.Lease | None:
        metadata = kwargs["litellm_params"].get("metadata") or {}
        _, lease = self.leases.pop(metadata.get(NOTE, ""), (0.0, None))
        return lease

    def log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        if lease := self._lease(kwargs):
            lease.answered(200)
            usage = getattr(response_obj, "usage", None)
            lease.complete(output_tokens=getattr(usage, "completion_tokens", None))

    def log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        if lease := self._lease(kwargs):
            status = getattr(kwargs.get("exception"), "status_code", None)
            if isinstance(status, int):
                lease.answered(status)
            lease.release()

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.log_success_event(kwargs, response_obj, start_time, end_time)

    async def async_log_failure_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.log_failure_event(kwargs, response_obj, start_time, end_time)


def asked(model: str, messages: Sequence[Mapping[str, Any]] | None, input: Any) -> dict[str, Any]:
    """What is asked for, with the prompt's length in tokens, about."""
    text = input if isinstance(input, str) else str(messages or input or "")
    return {"model": model, "prompt_tokens": len(text) // 4 + 1}


def told(error: paddler.Refused, model: str) -> Exception:
    """The same in LiteLLM's words, so that its own retries and fallbacks go on."""
    kinds: dict[int, type[Exception]] = {404: NotFoundError, 429: RateLimitError}
    kind: Any = kinds.get(error.status, ServiceUnavailableError)
    made: Exception = kind(message=str(error), llm_provider="paddler", model=model)
    return made
