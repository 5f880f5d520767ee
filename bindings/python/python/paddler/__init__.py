"""Routes each LLM request to the upstream that will answer it soonest, and can say why.

::

    import paddler

    board = paddler.Board("gateway")
    board.upsert("gpu-1", "http://10.0.0.3:8080", models=["llama"], max_in_flight=4)
    router = paddler.Router(board)
    with router.pick(model="llama", prompt_tokens=300) as lease:
        lease.sent()
        ...  # send the request to lease.upstream.url; when the answer begins:
        lease.first_byte()
"""

import atexit as _atexit
import os as _os

from . import _paddler
from ._errors import (
    BadRequest,
    Busy,
    ConfigError,
    Fault,
    ModelNotFound,
    NodeFailed,
    Refused,
    Unavailable,
)
from ._explanation import Explanation, Step
from ._models import ModelRule, ModelSettings, ModelTarget, ModelTimes
from ._paddler import (
    Board,
    Candidate,
    Facts,
    Lease,
    ModelRules,
    Report,
    Tree,
    Upstream,
    __version__,
    read_vllm,
)
from ._router import Router
from ._status import Degraded, ServiceStatus, Status

__all__ = [
    "BadRequest",
    "Board",
    "Busy",
    "Candidate",
    "ConfigError",
    "Degraded",
    "Explanation",
    "Facts",
    "Fault",
    "Lease",
    "ModelNotFound",
    "ModelRule",
    "ModelRules",
    "ModelSettings",
    "ModelTarget",
    "ModelTimes",
    "NodeFailed",
    "Refused",
    "Report",
    "Router",
    "ServiceStatus",
    "Status",
    "Step",
    "Tree",
    "Unavailable",
    "Upstream",
    "__version__",
    "read_vllm",
]

# What runs in the background ends before the interpreter does, and is not there in a child.
_atexit.register(_paddler._stop_all)
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(
        before=_paddler._forks,
        after_in_parent=lambda: _paddler._forked(False),
        after_in_child=lambda: _paddler._forked(True),
    )
