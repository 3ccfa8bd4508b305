"""Runs the constructors of completions in isolated workers, so that a renderer knows what they make."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelllm_judge.core.shorten import whole
from kernelllm_judge.core.syntax import is_literal
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.isolation.isolation import Isolation
from kernelllm_judge.isolation.processes import GIB, ResourceBounds
from kernelllm_judge.launching import ServerHost
from kernelllm_judge.supervisor import ForkServer

SECONDS = 60.0
"""Seconds that a constructor may take, also on a busy machine and with what torch imports late."""

BOUNDS = ResourceBounds(tasks=64, memory=min(8 * GIB, ResourceBounds().memory), disk=GIB // 4, files=1000)
"""What it may use. Its tensors need no memory, except where it asks for their values."""

DEEPEST = 4
"""Levels of an argument's attributes that are passed on."""


@dataclass(frozen=True)
class Constructed:
    """What a constructor made, as its worker describes it; or why it failed. All of it is untrusted."""

    reply: Mapping[str, Any]
    error: str = ""
    """One clause that names the line and the cause; empty where it did not fail."""


class Constructors:
    """Runs constructors, each in a worker of its own. Thread-safe; its process starts on first use."""

    def __init__(
        self, isolation: Isolation, seconds: float = SECONDS, host: ServerHost | None = None
    ) -> None:
        """``isolation`` and ``host`` are as for the workers that run candidates; ``seconds`` are what each constructor may take."""
        self.seconds = seconds
        without_gpu = replace(isolation, gpu=False, unix_sockets=False, memfd=False)
        self._server = ForkServer("construct", without_gpu, bounds=BOUNDS, host=host)

    def construct(self, source: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Constructed:
        """Builds the ``ModelNew`` of a completion.

        Args:
            source: the completion.
            args: positional arguments of the constructor, of any type; it gets plain values, dtypes, what torch defines,
                tensors without values, and other objects as their stored attributes.
            kwargs: keyword arguments.

        Raises:
            launching.ServerFailed: the process that starts workers cannot start.
        """
        request = {"source": source, "args": encoded(list(args)), "kwargs": encoded(dict(kwargs))}
        for last in (False, True):
            try:
                with self._server.worker(self.seconds) as worker:
                    reply = worker.request("construct", **request)
            except WorkerDied as error:
                if not error.killed or last:  # something outside may have killed it
                    return Constructed({}, str(error))
            else:
                break
        return Constructed(reply, _words(reply["error"])) if "error" in reply else Constructed(reply)

    def close(self) -> None:
        """Ends the process and all workers."""
        self._server.close()

    def __enter__(self) -> Constructors:
        """Starts nothing yet."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Ends the process and all workers."""
        self.close()


def encoded(value: Any, depth: int = 0) -> Any:
    """Returns a constructor's argument as JSON, see ``worker.constructing``."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, tuple | list | torch.Size):
        return {"list" if isinstance(value, list) else "tuple": [encoded(item, depth + 1) for item in value]}
    if isinstance(value, dict):
        return {"dict": {str(key): encoded(item, depth + 1) for key, item in value.items()}}
    if isinstance(value, torch.dtype):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.Tensor):
        return {"tensor": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
    name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) and name.startswith("torch."):
        return {"torch": name.removeprefix("torch.")}
    return {"object": _stored(value, depth) if depth < DEEPEST else {}}


def _stored(value: Any, depth: int) -> dict[str, Any]:
    """Returns the attributes of an object, and the plain ones of its class. No property runs."""
    if isinstance(value, type | types.FunctionType | types.ModuleType | torch.nn.Module):
        return {}
    found: dict[str, Any] = {}
    for cls in reversed(type(value).__mro__):
        found |= {n: v for n, v in vars(cls).items() if not n.startswith("__") and is_literal(v)}
    found |= getattr(value, "__dict__", {})
    return {str(name): encoded(item, depth + 1) for name, item in found.items()}


def _words(error: Any) -> str:
    """Returns an error of a worker in words; the text is untrusted, so its length is bounded."""
    if not isinstance(error, dict):
        return "an invalid reply"
    line = f"line {error['line']}: " if isinstance(error.get("line"), int) else ""
    return f"{line}{whole(error.get('type'), 80)}: {whole(error.get('message'))}"
