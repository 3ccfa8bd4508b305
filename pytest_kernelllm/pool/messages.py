"""The messages to the judging processes. Imports nothing heavy, because both sides need it."""

from __future__ import annotations

import base64
import pickle
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kernelllm_judge.core.measured import Measured
from kernelllm_judge.core.records import (
    BaselineChoice,
    Candidate,
    Completion,
    Environment,
    Record,
    Target,
    Verdict,
)
from kernelllm_judge.core.spans import Span


@dataclass(frozen=True)
class Handshake(Record):
    """The first message to a process of the pool."""

    environment: Environment
    gpu_uuid: str
    """Names the GPU's lock; empty without a GPU."""
    deadline: float
    """Seconds that one candidate may take."""
    isolation: Literal["best", "strict"]
    gpu_memory: int = 0
    """Bytes of GPU memory that judging may take; 0: nearly all of it."""
    judges: bool = True
    """Whether it judges; else it writes and renders candidates with the CPU alone."""
    name: str = "judge"
    """What its spans name as their process: that of its slot, ``judge 2``."""


@dataclass(frozen=True)
class TargetRequest(Record):
    """What every request says: which target it is about."""

    reference: str
    """Hash of the reference's content: as long as it is the same, its reference outputs are kept."""
    root: str
    """Folder that the target's path is relative to."""
    target: Target
    inputs: str
    """The callables that make the inputs in place of the marker's, see ``packed``; empty: the marker's."""


@dataclass(frozen=True)
class JudgeRequest(TargetRequest):
    """One candidate to judge. The reply is a verdict, or with ``in_project`` an ``ErrorReply``."""

    text: str
    """The candidate, as it stands in its file."""
    note: str
    """The candidate's file name."""
    min_speedup: float
    baseline: BaselineChoice
    timing: bool
    in_project: bool = False
    """Whether ``text`` is a rendered kernel module for a target of a project: judged as it stands, by the marker's own
    ``min_speedup`` where it has one. What keeps the target from being loaded is then an error, not a verdict."""
    adopted: bool = False
    """Whether the kernel ships already, see ``Criteria``."""
    tolerance: float | None = None
    """Largest allowed relative error in place of the marker's."""
    example: bool = False
    """Whether a rejection gets its ``example``, for whoever repairs the answer."""


@dataclass(frozen=True)
class PrepareRequest(TargetRequest):
    """A target to load, and what to write and render for it. The reply is a ``PrepareReply``, or an ``ErrorReply``."""

    indices: tuple[int, ...] = ()
    """Indices of the completions that the ``inductor`` generator writes."""
    completions: tuple[Completion, ...] = ()
    """Further completions to render."""


@dataclass(frozen=True)
class MeasureRequest(TargetRequest):
    """A completion to render and to time, without judging it. The reply is a ``MeasuredReply``, or an ``ErrorReply``."""

    completion: Completion


Request = JudgeRequest | PrepareRequest | MeasureRequest

_KINDS: Mapping[str, type[Request]] = {
    "judge": JudgeRequest,
    "prepare": PrepareRequest,
    "measure": MeasureRequest,
}


def message(request: Request) -> dict[str, Any]:
    """Returns the message that carries a request."""
    [kind] = [name for name, record in _KINDS.items() if isinstance(request, record)]
    return {kind: request.to_json()}


def request_of(message: Mapping[str, Any]) -> Request:
    """Returns the request that a message carries."""
    kind = next((name for name in _KINDS if name in message), "judge")
    return _KINDS[kind].from_json(message.get(kind, {}))


@dataclass(frozen=True)
class Rendering(Record):
    """What became of a completion."""

    completion: Completion
    candidate: Candidate | None
    refusal: str = ""
    """Why there is no candidate."""


@dataclass(frozen=True, kw_only=True)
class PoolReply(Record):
    """What every reply has besides."""

    spans: tuple[Span, ...] = ()
    """What the process did since its last reply."""


@dataclass(frozen=True)
class PrepareReply(PoolReply):
    """The completions that were written, as rendered."""

    renderings: tuple[Rendering, ...]
    notes: tuple[str, ...] = ()
    """What the user should know about the target, see ``LiveTarget.notes``."""


@dataclass(frozen=True)
class VerdictReply(PoolReply):
    """A candidate was judged."""

    verdict: Verdict


@dataclass(frozen=True)
class MeasuredReply(PoolReply):
    """A completion was timed."""

    measured: Measured


@dataclass(frozen=True)
class ErrorReply(PoolReply):
    """Nothing can be done for this target; one sentence."""

    error: str


_REPLIES: Mapping[str, type[PoolReply]] = {
    "error": ErrorReply,
    "renderings": PrepareReply,
    "verdict": VerdictReply,
    "measured": MeasuredReply,
}
"""By a field that no other one has."""


def reply_of(message: Mapping[str, Any]) -> PoolReply:
    """Returns the reply that a message carries."""
    return next(record for field, record in _REPLIES.items() if field in message).from_json(message)


class CannotPack(Exception):
    """Callables cannot be sent to another process; the text says why."""


_REGISTERING = threading.Lock()
"""What cloudpickle is told of modules is told to the whole process."""


def packed(inputs: Any) -> str:
    """Writes callables of a conftest as a text from which ``unpacked`` makes them again in another process."""
    if inputs is None:
        return ""
    try:
        import cloudpickle
    except ImportError:
        raise CannotPack("cloudpickle is not installed; run `pip install cloudpickle`") from None
    callables = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    names = {getattr(each, "__module__", None) for each in callables} - {"builtins", "__main__"}
    # By value: pytest may have imported a conftest under a name that another process does not find.
    modules = [sys.modules[name] for name in names if name in sys.modules]
    with _REGISTERING:
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            return base64.b64encode(cloudpickle.dumps(inputs)).decode()
        except Exception as error:  # whatever a user's object raises
            raise CannotPack(f"{type(error).__name__}: {error}") from None
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


def unpacked(text: str) -> Any:
    """Makes the callables that ``packed`` wrote; None for the empty text."""
    return pickle.loads(base64.b64decode(text)) if text else None
