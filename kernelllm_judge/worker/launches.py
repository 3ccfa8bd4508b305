"""Counts, skips and times kernel launches in a worker."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from triton.compiler import CompiledKernel
from triton.runtime import autotuner, interpreter, jit

from kernelllm_judge.core import accelerator
from kernelllm_judge.shared.watch import OperationWatch


class LaunchRecorder:
    """Intercepts every kernel launch once ``install`` has been called."""

    def __init__(self) -> None:
        """Starts with no launches counted."""
        self.count = 0
        self._contexts = 0
        """How many of the contexts below are entered. Outside of them calls are timed, so a launch costs little more."""
        self._left_out = False
        self.passed: list[list[float]] = []
        """The numbers that were passed to each launch that was left out, and how many programs it has."""
        self._spans: list[tuple[Any, Any]] | None = None
        self._watch = OperationWatch()

    def install(self) -> None:
        """Patches Triton's launch functions. Not reversible: a worker serves one candidate."""
        for cls in (jit.JITFunction, interpreter.InterpretedFunction):
            self._wrap(cls)
        self._wrap_compiled(CompiledKernel)
        tune = autotuner.Autotuner.run

        def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            if self._left_out:  # it would remember what it measured of nothing
                return self._launch(tune, tuner, *args, **kwargs)
            # Memory that the autotuner allocates to time configurations is not the candidate's.
            with self._watch.unguarded():
                return tune(tuner, *args, **kwargs)

        autotuner.Autotuner.run = run

    def _wrap(self, cls: Any) -> None:
        launch = cls.run

        def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("warmup"):
                return launch(kernel, *args, **kwargs)
            if self._contexts:
                return self._launch(launch, kernel, *args, **kwargs)
            self.count += 1
            return launch(kernel, *args, **kwargs)

        cls.run = run

    def _wrap_compiled(self, cls: Any) -> None:
        """Intercepts launches of kernels that ``kernel.warmup`` returned."""
        prepare = cls.__getitem__

        def prepared(kernel: Any, grid: Any) -> Callable[..., Any]:
            return functools.partial(self._launch, prepare(kernel, grid))

        cls.__getitem__ = prepared

    def _launch(self, launch: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        if self._left_out:
            passed = (*args, *kwargs.values(), *_grid(*args, **kwargs))
            self.passed.append([each for each in passed if type(each) in (bool, int, float)])
            return None
        with self._watch.unguarded():
            if self._spans is None:
                return launch(*args, **kwargs)
            start, end = accelerator.timing_event(), accelerator.timing_event()
            start.record()
            try:
                return launch(*args, **kwargs)
            finally:
                end.record()
                self._spans.append((start, end))

    @contextlib.contextmanager
    def watched(self, watch: OperationWatch) -> Iterator[None]:
        """A context in which ``watch`` counts torch's operations."""
        before, self._watch = self._watch, watch
        try:
            with watch, self._entered():
                yield
        finally:
            self._watch = before  # the other one holds the memory that it guards

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """A context in which launches do nothing, and leave in ``passed`` what numbers they get."""
        self._left_out, self.passed = True, []
        try:
            with self._entered():
                yield
        finally:
            self._left_out = False

    @contextlib.contextmanager
    def timed(self) -> Iterator[list[tuple[Any, Any]]]:
        """A context in which every launch is put between two events; yields their list."""
        spans: list[tuple[Any, Any]] = []
        self._spans = spans
        try:
            with self._entered():
                yield spans
        finally:
            self._spans = None

    @contextlib.contextmanager
    def _entered(self) -> Iterator[None]:
        self._contexts += 1
        try:
            yield
        finally:
            self._contexts -= 1


def _grid(kernel: Any, *args: Any, grid: Any = (), **kwargs: Any) -> tuple[Any, ...]:
    """Returns how many programs a launch asks for, along each axis."""
    if callable(grid):
        grid = grid({**dict(zip(getattr(kernel, "arg_names", ()), args, strict=False)), **kwargs})
    return grid if isinstance(grid, tuple) else (grid,)


def milliseconds(spans: list[tuple[Any, Any]]) -> float:
    """Waits for the GPU and returns the sum of the times between pairs of events, in ms."""
    accelerator.synchronize()
    return float(sum(start.elapsed_time(end) for start, end in spans))
