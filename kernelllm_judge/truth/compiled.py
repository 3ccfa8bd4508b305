"""``torch.compile`` of originals, the second baseline."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.truth.gradients import Gradients, both_passes
from kernelllm_judge.truth.prepared import PreparedProbe

Sharing = Callable[[], contextlib.AbstractContextManager[None]]

Sizes = tuple[str, tuple[tuple[str, int], ...], bool]
"""A case, its sizes, and whether its backward pass is compiled, too."""

RECOMPILATIONS = 64
"""How often a class may be compiled anew for other sizes or parts."""


class CompiledOriginals:
    """Compiles the original for each case and its sizes, once. Thread-safe."""

    def __init__(self) -> None:
        """Starts without compiled modules."""
        self._lock = threading.Lock()
        self._compiling: defaultdict[Sizes, threading.Lock] = defaultdict(threading.Lock)
        self._compiled: dict[Sizes, Callable[..., Any] | None] = {}

    def compile(
        self, prepared: PreparedProbe, sharing: Sharing, gradients: Gradients | None = None
    ) -> Callable[..., Any] | None:
        """Returns the compiled original, which has been called once; None where it does not compile.

        Args:
            sharing: returns a context that holds the GPU together with others. It is left while a module that is one graph
                is traced, and while Inductor compiles a graph: that takes minutes on the CPU for a deep network, for which
                nobody else should wait.
            gradients: those of the probe, if its backward pass is to be compiled, too.

        Raises:
            torch.OutOfMemoryError: there was too little memory; it may run at smaller sizes.
        """
        sizes = prepared.probe.case, prepared.probe.sizes, gradients is not None
        with self._lock:
            compiling = self._compiling[sizes]
        with compiling:
            with self._lock:
                if sizes in self._compiled:
                    return self._compiled[sizes]
            compiled = _compiled(prepared.callable_module(), prepared.arguments, sharing, gradients)
            with self._lock:
                self._compiled[sizes] = compiled
            return compiled

    def clear(self) -> None:
        """Drops everything."""
        with self._lock:
            self._compiled.clear()


class _Call(threading.local):
    """A thread's call of what is compiled as it is called, and its hold of the GPU."""

    def __init__(self) -> None:
        self.sharing: Sharing | None = None
        """Returns a context that holds the GPU, see ``CompiledOriginals.compile``; None: nothing is called."""
        self.held: contextlib.ExitStack | None = None
        """What holds the GPU, while it is held."""

    @contextlib.contextmanager
    def calling(self, sharing: Sharing, *, traced: bool) -> Iterator[None]:
        """Holds the GPU, but while a graph is compiled. What is compiled later is compiled as it is called.

        ``traced`` says whether the GPU is held from the beginning, while the module is traced, or from the first graph on.
        """
        self.sharing = sharing
        try:
            if traced:
                self.hold()
            yield
        finally:
            self.sharing = None
            self.let_go()

    def hold(self) -> None:
        """Holds the GPU, if something is called."""
        if self.sharing is not None and self.held is None:
            self.held = contextlib.ExitStack()
            self.held.enter_context(self.sharing())

    def let_go(self) -> None:
        """Leaves the GPU to others."""
        if self.held is not None:
            held, self.held = self.held, None
            held.close()


CALL = _Call()
"""PyTorch keeps what it compiled for the whole process: the graphs that run may be those of an earlier call."""

SEVERAL: set[object] = set()
"""The code of originals that are not one graph. Where PyTorch kept some of their graphs and is asked for a single one, it finds
those, and runs the rest as it is."""


def _inductor(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """PyTorch's own backend, which leaves the GPU to others while it compiles."""
    from torch._inductor import compile as compiled_by_inductor  # takes long to import

    CALL.let_go()
    compiled: Callable[..., Any] = compiled_by_inductor(graph, inputs)

    def run(*arguments: Any) -> Any:
        # Not earlier: threads compile one after the other, and who waits for that may hold the GPU.
        CALL.hold()
        return compiled(*arguments)

    return run


def _compiled(
    module: torch.nn.Module, arguments: dict[str, Any], sharing: Sharing, gradients: Gradients | None = None
) -> Callable[..., Any] | None:
    code = getattr(getattr(module.forward, "__func__", None), "__code__", type(module))
    # As one graph nothing runs before it is compiled, unless inputs are copied for a backward pass.
    copied = gradients is not None and gradients.in_place
    for fullgraph in (False,) if copied or code in SEVERAL else (True, False):
        try:
            return _called(module, arguments, sharing, gradients, fullgraph=fullgraph)
        except torch.OutOfMemoryError:
            raise
        except Exception:  # several graphs; or a baseline that cannot run, which is left out of the report
            SEVERAL.add(code)
    return None


def _called(
    module: torch.nn.Module,
    arguments: dict[str, Any],
    sharing: Sharing,
    gradients: Gradients | None,
    *,
    fullgraph: bool,
) -> Callable[..., Any]:
    """Returns the compiled module, which was called; with ``fullgraph``, as one graph. Raises whatever PyTorch does."""
    compiled = torch.compile(module, backend=_inductor, fullgraph=fullgraph)
    # Beyond the limit a call would run as it is, and count as compiled.
    limit = torch._dynamo.config.patch(recompile_limit=RECOMPILATIONS, fail_on_recompile_limit_hit=True)
    # Else it would be compiled as it is called, and nobody else could use the GPU.
    at_once = torch._functorch.config.patch(force_non_lazy_backward_lowering=True)
    with CALL.calling(sharing, traced=not fullgraph), torch.no_grad(), limit, at_once:
        if gradients is None:
            compiled(**nested(arguments))
        else:
            both_passes(compiled, arguments, gradients)()
        if fullgraph and CALL.held is None:
            raise RuntimeError("nothing that was compiled ran")
    # What was compiled is found again; with another argument it may need several graphs.
    several: Callable[..., Any] = torch.compile(module, backend=_inductor)
    return several
