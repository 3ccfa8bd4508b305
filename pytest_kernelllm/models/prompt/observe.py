"""Builds and calls the original to record which attributes and table entries it reads and what wrappers change."""

from __future__ import annotations

import copy
import math
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.records import Case, TensorSpec
from kernelllm_judge.target import build
from kernelllm_judge.target.calls import Call, seeded
from kernelllm_judge.target.errors import in_one_line
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.models.prompt.config_values import Reads, is_object, watched
from pytest_kernelllm.models.prompt.errors import NotPortable

_MOST_ELEMENTS = 1 << 22
"""Inputs with more elements are not run through the original, which runs on the CPU here."""


@dataclass
class TableReads:
    """The entries of a module-level dict that are read, and where the source reads them."""

    keys: list[Any] = field(default_factory=list)
    sites: dict[tuple[str, int], list[Any]] = field(default_factory=dict)
    """The keys that each line reads, by file and line."""
    whole: bool = False
    """Whether it was iterated over or its length was taken."""

    def note(self, key: Any) -> None:
        """Records that the caller of the table's method reads an entry."""
        frame = sys._getframe(2)
        site = self.sites.setdefault((frame.f_code.co_filename, frame.f_lineno), [])
        for keys in (self.keys, site):
            if key not in keys:
                keys.append(key)


class Observer:
    """Builds and calls one case of a target, on the CPU and at small sizes, and records what it reads."""

    def __init__(self, live: LiveTarget, case: Case, arguments: Call) -> None:
        """``arguments``: the arguments of the constructor."""
        self._live, self._case, self._arguments = live, case, arguments
        self._called = True
        self.reads: dict[int, Reads] = {}
        """What was read of constructor arguments that are objects, by the argument's ``id``."""
        self.module, _ = self._run(arguments.map(self._watch))

    def table(self, table: Any, name: str, imports: Iterable[Callable[[], object]]) -> TableReads:
        """Records what is read from a module-level dict.

        Args:
            table: the dict.
            name: its name in the modules.
            imports: callables that repeat what happens when the modules are imported.
        """
        reads = TableReads()
        recording = _recording(table, reads)
        with ExitStack() as stack:
            for module in list(sys.modules.values()):
                held = getattr(module, "__dict__", {})  # not by getattr: a lazy module would import something
                if held.get(name) is table:
                    stack.enter_context(_replaced(held, name, recording))
            self._run(self._arguments)
            for repeat in imports:
                try:
                    repeat()
                except Exception:  # not everything can be repeated
                    reads.whole = True
        if not self._called:
            reads.sites.clear()
            reads.whole = True
        return reads

    def same_without(self, wrapped: Mapping[tuple[type, str], Any]) -> bool:
        """Whether the outputs stay equal, bit for bit, if other functions replace some methods."""
        _, expected = self._run(self._arguments)
        if expected is None:
            return False
        with ExitStack() as stack:
            for (owner, name), function in wrapped.items():
                stack.enter_context(_replaced(owner, name, function))
            try:
                _, found = self._run(self._arguments)
                torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
            except Exception:  # whatever it is, the wrapper made a difference
                return False
        return True

    def _watch(self, value: Any) -> Any:
        if not is_object(value):
            return value
        recording, self.reads[id(value)] = watched(copy.deepcopy(value))
        return recording

    def _run(self, arguments: Call) -> tuple[nn.Module, Any]:
        """Returns a built module and its outputs; None for the outputs of inputs so large that they get no data."""
        where = f"{self._live.target.path}: {self._live.target.name}"
        sizes = small_sizes(self._case)
        device = "cpu" if sizes is not None else "meta"
        module = build.construct(self._live.cls, lambda: (arguments.args, arguments.kwargs), where)
        module = build.finished(module, self._case.dtype, device, self._live.options.training)
        call = self._live.inputs(self._case, 0, sizes, device)
        with seeded(0, device), torch.no_grad():
            for parameter in module.parameters():  # some constructors leave them uninitialised
                parameter.normal_()
            try:
                outputs = module(*call.args, **call.kwargs)
            except Exception as error:
                if sizes is None:  # not everything works without data
                    self._called = False
                    return module, None
                raise NotPortable(f"its forward fails at small sizes: {in_one_line(error)}") from error
        return module, outputs if sizes is not None else None


def small_sizes(case: Case) -> dict[str, int] | None:
    """Returns small sizes of a case's named dimensions, or None if its inputs are large even then."""
    sizes = {name: max(low, min(high, 4)) for name, (low, high) in case.domain.dims.items()}
    for value in case.domain.inputs.values():
        if isinstance(value, TensorSpec):
            shape = [sizes[entry] if isinstance(entry, str) else entry for entry in value.shape]
            if math.prod(shape) > _MOST_ELEMENTS:
                return None
    return sizes


def _recording(table: Any, reads: TableReads) -> Any:
    kind, base = type(table), OrderedDict if isinstance(table, OrderedDict) else dict

    class Recording(kind):  # type: ignore[misc, valid-type]  # of the table's own class
        def __getitem__(self, key: Any) -> Any:
            reads.note(key)
            return super().__getitem__(key)

        def get(self, key: Any, default: Any = None) -> Any:
            reads.note(key)
            return super().get(key, default)

        def __contains__(self, key: Any) -> bool:
            reads.note(key)
            return bool(super().__contains__(key))

        def __iter__(self) -> Iterator[Any]:
            reads.whole = True
            return iter(super().__iter__())

        def __len__(self) -> int:
            reads.whole = True
            return int(super().__len__())

        def keys(self) -> Any:
            reads.whole = True
            return super().keys()

        def values(self) -> Any:
            reads.whole = True
            return super().values()

        def items(self) -> Any:
            reads.whole = True
            return super().items()

    made = Recording.__new__(Recording)
    for key, value in dict.items(table):
        base.__setitem__(made, key, value)
    made.__dict__.update(getattr(table, "__dict__", {}))
    return made


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replaces a value in a module's namespace or in a class inside the block."""
    held = owner if isinstance(owner, dict) else None
    before = held[name] if held is not None else vars(owner)[name]
    if held is not None:
        held[name] = value
    else:
        setattr(owner, name, value)
    try:
        yield
    finally:
        if held is not None:
            held[name] = before
        else:
            setattr(owner, name, before)
