"""``torch.compile`` of originals, the second baseline."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import torch

from pytest_kernelllm.judge.reference.prepared import PreparedProbe

Sharing = Callable[[], contextlib.AbstractContextManager[None]]

Sizes = tuple[str, tuple[tuple[str, int], ...]]
"""A case and its sizes."""


class CompiledOriginals:
    """Compiles the original for each case and its sizes, once. Thread-safe."""

    def __init__(self) -> None:
        """Compiles nothing yet."""
        self._lock = threading.Lock()
        self._compiled: dict[Sizes, Callable[..., Any] | None] = {}

    def compile(self, prepared: PreparedProbe, arguments: dict[str, Any], sharing: Sharing) -> None:
        """Compiles the original, and calls it once.

        Args:
            prepared: a probe.
            arguments: the probe's, where the original runs.
            sharing: returns a context that holds the GPU together with others. Only what runs there is in it: compiling a deep
                network takes minutes on the CPU, for which nobody else should wait.

        Raises:
            torch.cuda.OutOfMemoryError: there was too little memory; it may run at smaller sizes.
        """
        sizes = _sizes(prepared)
        with self._lock:
            if sizes not in self._compiled:
                self._compiled[sizes] = _compiled(prepared.callable_module(), arguments, sharing)

    def get(self, prepared: PreparedProbe) -> Callable[..., Any] | None:
        """Returns the compiled original for a probe's case and sizes; None where it does not compile."""
        with self._lock:
            return self._compiled[_sizes(prepared)]

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            self._compiled.clear()


def _sizes(prepared: PreparedProbe) -> Sizes:
    return prepared.probe.case, prepared.probe.sizes


def _compiled(
    module: torch.nn.Module, arguments: dict[str, Any], sharing: Sharing
) -> Callable[..., Any] | None:
    held = contextlib.ExitStack()
    calling = True

    def inductor(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        from torch._inductor import compile as compiled_by_inductor  # takes long to import

        held.close()  # an earlier graph of this call has run
        compiled: Callable[..., Any] = compiled_by_inductor(graph, inputs)
        if calling:
            held.enter_context(sharing())
        return compiled

    compiled = torch.compile(module, backend=inductor)
    try:
        with held, torch.no_grad():
            compiled(**arguments)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception:  # a baseline that cannot run is left out of the report
        return None
    finally:
        calling = False
    return compiled
