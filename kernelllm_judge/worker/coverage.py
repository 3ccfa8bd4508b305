"""Loads a kernel module so that its decisions are recorded in every call but those that are timed."""

from __future__ import annotations

import contextlib
import itertools
import time
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from kernelllm_judge.coverage.decisions import RECORD, Outcome, instrumented, recorder
from kernelllm_judge.worker.launches import LaunchRecorder


class Coverage:
    """The outcomes that the decisions of one kernel module have had."""

    def __init__(self) -> None:
        """Nothing is loaded yet."""
        self._taken: set[tuple[int, Outcome, bool]] = set()
        self._functions: list[tuple[types.FunctionType, types.CodeType, types.CodeType]] = []
        """Functions of the module, each with its plain and its recording code."""

    def load(self, module: types.ModuleType, source: str, file: str) -> None:
        """Executes a source in a module. Triton reads its kernels from the file, which is as long."""
        recording = compile(instrumented(source), file, "exec")
        plain = _by_name(compile(source, file, "exec"))
        vars(module)[RECORD] = recorder(self._taken, _in_backward)
        exec(recording, vars(module))
        self._functions = [
            (function, code, function.__code__)
            for function in _functions(vars(module), file)
            if (code := plain.get((function.__code__.co_qualname, function.__code__.co_firstlineno)))
        ]

    def taken(self) -> list[list[Outcome]]:
        """Returns what was recorded since the last time: decisions' numbers, their outcomes, whether in a backward pass."""
        taken = [list(each) for each in self._taken]
        self._taken.clear()
        return taken

    def of_calls(
        self, calls: Iterable[Callable[[], Any]], launches: LaunchRecorder, seconds: float
    ) -> list[dict[str, Any]]:
        """Returns how each call decides, and which numbers it passes to launches, which are left out.

        Calls that fail are no worse than others: nothing that they see ships. When the seconds are over, no more are made.
        """
        found: list[dict[str, Any]] = []
        end = time.monotonic() + seconds
        self.taken()
        with launches.left_out():
            for call in itertools.takewhile(lambda _: time.monotonic() <= end, calls):
                launches.passed = []
                with contextlib.suppress(Exception):
                    call()
                found.append({"decided": self.taken(), "passed": launches.passed})
        return found

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """A context in which nothing is recorded, so that a call takes no longer than in use."""
        for function, plain, _ in self._functions:
            function.__code__ = plain
        try:
            yield
        finally:
            for function, _, recording in self._functions:
                function.__code__ = recording


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


def _by_name(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    found = {(each.co_qualname, each.co_firstlineno): each for each in inner}
    for each in inner:
        found |= _by_name(each)
    return found


def _functions(names: dict[str, Any], file: str) -> Iterator[types.FunctionType]:
    """Yields the functions of a module and of its classes."""
    classes = [value for value in names.values() if isinstance(value, type)]
    own = [each for each in classes if each.__module__ == names["__name__"]]
    for value in (*names.values(), *(value for each in own for value in vars(each).values())):
        function = getattr(value, "__func__", value)  # static and class methods
        if isinstance(function, types.FunctionType) and function.__code__.co_filename == file:
            yield function
