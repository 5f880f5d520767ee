"""The part that is written in Rust. Numbers for times are in seconds, those in an upstream's `timeouts` are text with a unit as in
a config file, usage is a share from 0 to 1, and `None` is unknown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import Literal, TypedDict, final

from typing_extensions import Self, Unpack

from ._explanation import Explanation
from ._models import ModelRule, ModelSettings
from ._router import Asked, AskedNow
from ._status import Degraded, Status
from .nodes import ConditionFunction, CostFunction, FilterFunction, Node

__all__ = [
    "__version__",
    "_forked",
    "_forks",
    "_stop_all",
    "Board",
    "Candidate",
    "Facts",
    "Lease",
    "ModelRules",
    "Report",
    "read_vllm",
    "Router",
    "Waiting",
    "Upstream",
    "Tree",
]

__version__: str

def _stop_all() -> None: ...
def _forked(in_child: bool) -> None: ...
def _forks() -> None: ...

_Task = Literal[
    "chat",
    "completion",
    "infill",
    "embedding",
    "pooling",
    "rerank",
    "responses",
    "messages",
    "audio",
    "image",
    "other",
]

class _Model(TypedDict, total=False):
    id: str
    aliases: Sequence[str]
    parent: str | None

class _Settings(TypedDict, total=False):
    models: Literal["any"] | Sequence[str | _Model] | None
    labels: Mapping[str, str] | None
    max_in_flight: int | None
    max_sequences: int | None
    metrics_url: str | None
    engine: Literal["auto", "llamacpp", "vllm", "sglang", "trtllm", "triton", "ollama", "openai", "anthropic", "paddler"] | None
    traffic: Literal["all", "named", "fallback"] | None
    http2: Literal["auto", "never", "always"] | None
    host: Literal["rewrite", "keep"] | None
    tls: Mapping[str, str] | None
    timeouts: Mapping[Literal["connect", "first_byte", "idle"], str] | None
    api_key_file: str | None

class _Adapters(TypedDict):
    max: int | None
    running: Sequence[str]
    waiting: Sequence[str]

class _Signals(TypedDict, total=False):
    health: Literal["ready", "loading", "failing"] | None
    running: int | None
    waiting: int | None
    slots_total: int | None
    slots_busy: int | None
    max_sequences: int | None
    kv_cache_usage: float | None
    adapters: _Adapters | None
    loaded_adapters: Sequence[str] | None
    models: Literal["any"] | Sequence[str | _Model] | None
    degraded: Sequence[Degraded] | None

@final
class Tree:
    """A checked tree: every way through it ends in a decision. Several boards may share one."""

    def __new__(
        cls,
        nodes: str | Node,
        *,
        signals: Literal["reported", "corrected"] | None = None,
        filters: Mapping[str, FilterFunction] | None = None,
        costs: Mapping[str, CostFunction] | None = None,
        conditions: Mapping[str, ConditionFunction] | None = None,
    ) -> Self:
        """A built-in tree by its name (`gateway`, `balancer`, `seed`), or one of nodes: the same lists and mappings that YAML
        has, written out or made by `paddler.nodes`. Where a filter, cost or condition may stand, a function of yours may.

        `filters`, `costs` and `conditions` are functions by the names that the tree has for them; what stands under such a name in the tree
        is given to the function by name. `signals`: whether reports are corrected by what was sent since (the default).

        Raises `ConfigError` with every fault.
        """
    @staticmethod
    def from_yaml(
        text: str,
        *,
        name: str = "",
        filters: Mapping[str, FilterFunction] | None = None,
        costs: Mapping[str, CostFunction] | None = None,
        conditions: Mapping[str, ConditionFunction] | None = None,
    ) -> Tree:
        """Reads YAML (or JSON) with the keys `tree` and, if need be, `signals`. `name` is for the faults."""
    @staticmethod
    def from_file(
        path: str | PathLike[str],
        *,
        filters: Mapping[str, FilterFunction] | None = None,
        costs: Mapping[str, CostFunction] | None = None,
        conditions: Mapping[str, ConditionFunction] | None = None,
    ) -> Tree:
        """Reads a file of it."""
    def title(self, node: int) -> str | None:
        """What the node of this number does, in a line. The root is 0."""
    @property
    def signals(self) -> Literal["reported", "corrected"]: ...
    def __len__(self) -> int:
        """How many nodes there are."""
    def __str__(self) -> str:
        """The signals, then each node in a line. Trees that are written alike read alike."""

@final
class Upstream:
    """What an upstream is."""

    @property
    def id(self) -> str: ...
    @property
    def url(self) -> str: ...
    @property
    def labels(self) -> dict[str, str]: ...
    @property
    def models(self) -> list[str] | None:
        """The names of its models, as they were said. `None`: it was not said, or any will do."""
    @property
    def max_in_flight(self) -> int | None:
        """The most weight that may be open there at once, as it was said."""
    @property
    def extra(self) -> object | None:
        """The object that was given as `extra`."""

@final
class Candidate:
    """An upstream as a filter or a cost sees it: all of one moment. Counts are in requests of weight one."""

    @property
    def id(self) -> str: ...
    @property
    def upstream(self) -> Upstream: ...
    @property
    def own_weight(self) -> int:
        """Our own open weight there, with what settles."""
    @property
    def own_requests(self) -> int:
        """Our own requests there that have not ended."""
    @property
    def load(self) -> int:
        """Our own open weight and what others had there at the last report."""
    @property
    def room(self) -> int | None:
        """Requests that it works on at once."""
    @property
    def waiting(self) -> int | None:
        """Requests that wait in its queue; corrected, at least what exceeds its room."""
    @property
    def running(self) -> int | None:
        """Requests that it works on, as reported."""
    @property
    def kv_cache_usage(self) -> float | None: ...
    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that we have sent there and that no first byte has answered yet, estimated."""
    @property
    def adapter_active(self) -> bool:
        """Whether the adapter (LoRA) that is asked for is in use there."""
    @property
    def fits(self) -> bool:
        """Whether the weight of this request could be reserved there."""
    @property
    def age(self) -> float | None:
        """How old its last report is, in seconds."""
    @property
    def extra(self) -> object | None:
        """The object that was given as `extra` with the last report."""

@final
class Facts:
    """What is known of a request."""

    def __new__(
        cls,
        *,
        model: str | None = None,
        prompt_tokens: int = 0,
        weight: int = 1,
        task: _Task = "chat",
        priority: int = 0,
        tenant: str | None = None,
        session: str | None = None,
        stream: bool = False,
    ) -> Self:
        """`weight`: how many sequences it takes. `priority`: 0 is standard, and below it may be shed."""
    @classmethod
    def from_body(cls, path: str, body: bytes | bytearray, *, method: str = "POST") -> Facts:
        """Reads them from a request, as the router itself does: model, weight, tokens (estimated by bytes), streaming, user.

        Raises `BadRequest` for a body that an engine would refuse or read otherwise than here.
        """
    @property
    def kind(self) -> Literal["generate", "control", "local", "admin"]:
        """How a router would treat it. Of admin paths it closes each."""
    @property
    def task(self) -> _Task | None: ...
    @property
    def model(self) -> str | None:
        """`None`: any."""
    @property
    def asked(self) -> str | None:
        """The name that was asked for, where that stands for `model` by `ModelRules`."""
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def weight(self) -> int:
        """In sequences: at least 1 if it generates, else 0."""
    @property
    def body_bytes(self) -> int: ...
    @property
    def stream(self) -> bool: ...
    @property
    def priority(self) -> int: ...
    @property
    def tenant(self) -> str | None: ...
    @property
    def session(self) -> str | None: ...
    @property
    def replayable(self) -> bool:
        """Whether it may be sent once more, elsewhere, when no byte came back."""

@final
class ModelRules:
    """Names of models that stand for others, and what is special about each. Any number of threads may use them."""

    def __new__(cls, models: Mapping[str, str | ModelRule], *, seed: int | None = None) -> Self:
        """A model for each name, or a `ModelRule`, as `models` of a config file has them. A name that ends in `*` is for all that
        begin so, and of those the longest counts; a `*` in its target is the rest. `seed`: where chance comes from.

        Raises `ConfigError` with every fault.
        """
    def resolve(self, facts: Facts, *, seed: int | None = None) -> Facts:
        """The facts with the model that is meant in `model`, and the name that was asked for in `asked`; of several, one is drawn by
        weight. A priority of 0 becomes that of the model. What was resolved before stays, so that a retry asks for the same
        model: resolve once, then pick. `seed`: of this draw alone.
        """
    def settings(self, facts: Facts) -> ModelSettings:
        """What is special about a request, by the name that it asks for and the model that is meant."""
    def fallback(self, facts: Facts) -> tuple[list[str], float] | None:
        """Which models serve a request, in order, when its own has no place, and how many seconds one waits for each before the
        next; `None`: its rule names none. Board and queue do not go by it: ask for `instead` where a pick or a wait is in vain.
        """
    def instead(self, facts: Facts, model: str) -> Facts:
        """The facts of the same request for another model of its `fallback`, so that upstreams with the traffic `fallback` may serve
        it, too.

        Raises `ValueError` where the rule does not name that model.
        """
    def targets(self, name: str) -> list[str]:
        """All models that a request for this name may get by its rule. None: it is what it says."""
    def aliases(self) -> list[str]:
        """The names that stand for others, without those for all that begin alike: what a list of models can hold."""
    def __len__(self) -> int:
        """How many rules there are."""

@final
class Report:
    """What an upstream says of itself at one moment. What is not said is unknown from then on, never zero."""

    def __new__(cls, *, extra: object | None = None, **signals: Unpack[_Signals]) -> Self: ...
    def as_dict(self) -> dict[str, object]:
        """All signals by name, of which a `Report` can be made again; what is unknown is `None`. `degraded`, where it is there: which
        of them could not be read, and why."""

def read_vllm(page: bytes | bytearray, *, names: Mapping[str, list[str]] | None = None) -> Report:
    """Reads a page of metrics as vLLM writes it. `names`: under which other names `running`, `waiting`, `kv_cache_usage` and
    `adapters` are looked for, as selectors such as `queue{kind=main}`; the first that is found counts."""

@final
class Board:
    """What is known of upstreams, and who writes it.

    Until it is started it has no thread: what is told is in force at the next pick (a report within `publish_every`). Started,
    one thread in the background polls the engines and lets requests wait. Any number of threads may use one board.

    A function in the tree that is asked for those who wait is asked in that thread, and whoever tells the board waits for it: it
    must not want a lock that is held meanwhile. One that knows its board keeps that for good, and its thread until `stop`.
    """

    def __new__(
        cls,
        tree: Tree | str | Node | None = None,
        *,
        settle: float = 10.0,
        publish_every: float = 0.01,
        clock: Callable[[], float] | None = None,
    ) -> Self:
        """`tree`: by default `gateway`. `settle`: how long the weight of a cancelled request stays reserved at most.
        `publish_every`: the shortest time between two looks at what reports say.
        `clock`: tells the time in seconds from when the board began, for tests and simulations; such a board cannot be started.
        """
    def upsert(
        self, id: str, url: str, *, api_key: str | None = None, extra: object | None = None, **settings: Unpack[_Settings]
    ) -> None:
        """An upstream exists and is like this; one of the same id is replaced, and its counts go on. The settings are those of
        a config file; `timeouts` are such as `{"first_byte": "30s"}`, and the key is given as `api_key` or in a file, not both.
        `extra` rides along for your own filters.

        Raises `ConfigError` for what is written wrong, and `ValueError` for a key or, if the board was started, a certificate that
        cannot be used.
        """
    def remove(self, id: str) -> bool:
        """It exists no more; what is open there goes on to its end. Whether it was known."""
    def report(
        self, id: str, report: Report | None = None, *, extra: object | None = ..., **signals: Unpack[_Signals]
    ) -> bool:
        """It said how it is, as a `Report` or by its signals. Whether it is known."""
    def failed(
        self, id: str, kind: Literal["unreachable", "timeout", "unreadable", "silent"] = "timeout", message: str = ""
    ) -> bool:
        """It could not be asked. Its last report stays, and ages. Whether it is known."""
    def drain(self, id: str, draining: bool = True) -> bool:
        """Takes it out of every pick at once, or lets it back in. Whether it is known."""
    def set_tree(self, tree: Tree | str | Node) -> None:
        """Puts another tree in force, for the next pick and for all who wait."""
    def publish(self) -> None:
        """Puts in force at once what was told so far."""
    def upstreams(self) -> list[Upstream]: ...
    def statuses(self) -> list[Status]:
        """How each upstream is, and why: what it says of itself, its polls, and what became of its requests. In the words of the
        program's `GET /api/v1/upstreams`; what is not known is left out."""
    def status(self, id: str) -> Status | None:
        """The same of one. `None`: it is not known."""
    def start(
        self,
        *,
        poll_interval: float | None = 1.0,
        poll_timeout: float = 3.0,
        poll_concurrency: int = 64,
        max_requests: int = 30,
        max_wait: float = 10.0,
        seed: int | None = None,
    ) -> Board:
        """Starts the thread in the background, and answers with the board, for `with`. A poll replaces what was reported.

        `poll_interval`: seconds between polls of an upstream; `None`: none is polled. `poll_timeout`: seconds after which one that
        has not answered has failed a poll. `poll_concurrency`: how many are polled at once. `max_requests`, `max_wait`: how many
        requests may wait for room, and for how many seconds. `seed`: where chance comes from for those who wait.

        Raises `ValueError` for an upstream to which there is no way, such as one with a certificate that cannot be read; the
        board is then as before.
        """
    def stop(self) -> None:
        """Ends the thread, and waits for the function of yours that it asks just then. Who waits for a place is refused; leases
        stay good; nothing else does. Also done at the end of `with`, and at exit."""
    @property
    def is_running(self) -> bool: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __enter__(self) -> Board: ...
    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> None: ...

class Router:
    def __new__(cls, board: Board, *, seed: int | None = None) -> Self:
        """`seed`: where chance comes from. With the same one, the same picks follow the same statuses."""
    @property
    def board(self) -> Board: ...
    def pick(
        self,
        facts: Facts | None = None,
        *,
        explain: bool = False,
        model: str | None = None,
        prompt_tokens: int | None = None,
        weight: int | None = None,
        task: str | None = None,
        priority: int | None = None,
        tenant: str | None = None,
        session: str | None = None,
        stream: bool | None = None,
        only: Iterable[str | Upstream] | None = None,
        exclude: Iterable[str | Upstream] | None = None,
        seed: int | None = None,
    ) -> Lease:
        """Picks at once, and reserves room there. What is given by name outweighs `facts`.

        `only`: nobody but these; `exclude`: not these, since they were tried. `seed`: of this pick alone. `explain`: the lease,
        or the exception, has an `explanation`. Raises `Refused`.
        """
    def explain(self, facts: Facts | None = None, **asked: Unpack[AskedNow]) -> Explanation:
        """What a pick would do now, and why. Nothing is reserved, so the one that follows may go elsewhere."""
    def _wait(
        self,
        done: Callable[[Lease | None, BaseException | None], None],
        timeout: float | None,
        facts: Facts | None,
        /,
        **asked: Unpack[Asked],
    ) -> Waiting: ...

@final
class Waiting:
    def cancel(self) -> None: ...

@final
class Lease:
    """The right to use an upstream for one request: `with router.pick() as lease`.

    Left without an exception, it is complete: the engine is free. Left by one, or forgotten, it counts as cancelled: what was
    sent stays reserved until a poll sees the room, or until `settle` has passed.
    """

    @property
    def upstream(self) -> Upstream: ...
    @property
    def stage(self) -> Literal["reserved", "sent", "first_byte", "ended"]: ...
    @property
    def weight(self) -> int:
        """The weight that is counted there, at most the upstream's limit. 0 once it has ended."""
    @property
    def explanation(self) -> Explanation | None:
        """Why there, if the pick was asked to explain itself."""
    def sent(self) -> None:
        """The request is on its way: from now on the upstream may be working on it."""
    def first_byte(self) -> None:
        """The answer has begun, so the prompt has been read."""
    def answered(self, status: int = 200, *, retry_after: float | None = None) -> None:
        """What its answer's HTTP status says of the upstream's health. `retry_after`: what it asks for, in seconds. An upstream
        that fails is told from a request that fails wherever it is sent (500), by how many requests fail: each lease counts as one,
        so a request that is sent again counts as another."""
    def failed(self, fault: Literal["unreachable", "broke", "cut_short", "late", "unavailable"]) -> None:
        """It failed without a status. `unreachable`: no connection, so the lease has ended. After any other fault a `with` that
        is left ends the lease as cancelled, since the engine may go on."""
    def move_to(self, id: str) -> None:
        """Another upstream serves it than the one that was picked. Raises `KeyError` where that is not known."""
    def complete(self, *, prompt_tokens: int | None = None, output_tokens: int | None = None) -> None:
        """The answer has come to its end. With what it used, its tenant is charged for that and not for an estimate."""
    def release(self) -> None:
        """It is not wanted any more."""
    def __enter__(self) -> Lease: ...
    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None, /
    ) -> None: ...
