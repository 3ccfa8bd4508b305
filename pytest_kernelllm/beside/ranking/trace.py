"""Records what one call of a model does: each operation with the memory that it moves, and each module's call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_runtime.returned import fields_of
from pytest_kernelllm.beside.ranking.integers import KnownIntegers
from pytest_kernelllm.beside.ranking.operations import Operation, Region, attention, operation


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call of a module, without their data."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    """Tensors are replaced by a ``Shape``, plain values and tuples, lists and dicts stay, anything else is its type."""

    @property
    def form(self) -> str:
        """A text that is equal for calls that do the same work."""
        return repr((self.args, sorted(self.kwargs.items())))


@dataclass(frozen=True)
class Shape:
    """A tensor in a call's arguments."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    range: tuple[int, int] | None = field(default=None, compare=False, repr=False)
    """The smallest element of a tensor of integers and one more than the largest, where the run knew them."""


@dataclass(frozen=True)
class ModuleCall:
    """One call of one module: the operations from ``start`` to before ``end`` ran inside it."""

    path: str
    module: nn.Module = field(repr=False)
    arguments: Arguments = field(repr=False)
    start: int
    end: int
    parent: int | None
    """Index of the call that made this one; None outside all modules."""
    returned: Any = field(default=None, repr=False)
    """The values that it returned, in the form of ``Arguments``."""


@dataclass(frozen=True)
class Trace:
    """One run: its operations in order, and the calls of modules in the order in which they began."""

    operations: tuple[Operation, ...]
    calls: tuple[ModuleCall, ...]
    kept: frozenset[int]
    """Storages that were alive at the end: what the model returned, and what it keeps."""
    microseconds: tuple[float, ...] = ()
    """The device's time of each operation; empty if it was not measured."""


class Stopwatch(Protocol):
    """Measures the device's time of single operations."""

    def time(self, call: Callable[[], Any]) -> tuple[Any, Callable[[], float]]:
        """Makes a call; returns its result, and a function that returns its µs once the run has ended."""


def record(
    model: nn.Module,
    example: Callable[[], object],
    stopwatch: Stopwatch | None = None,
    integers: KnownIntegers | None = None,
) -> Trace:
    """Runs ``example`` once without gradients, and records what happens.

    Args:
        model: the model that the example calls; other modules are not told apart.
        stopwatch: measures each operation.
        integers: knows the values of integers in a run without data.
    """
    recorder = _Recorder(stopwatch, integers)
    handles = []
    for path, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(recorder.entering(path), with_kwargs=True))
        handles.append(module.register_forward_hook(recorder.left))
    try:
        with torch.no_grad(), recorder, _AttentionAsOne(recorder):
            result = example()
        kept = recorder.alive()
        del result
        microseconds = tuple(measured() for measured in recorder.measured)
    finally:
        for handle in handles:
            handle.remove()
    return Trace(tuple(recorder.operations), tuple(recorder.calls), kept, microseconds)


class _Recorder(DispatchMode):
    """Sees every operation that reaches the dispatcher."""

    def __init__(self, stopwatch: Stopwatch | None, integers: KnownIntegers | None) -> None:
        super().__init__()
        self._integers = integers
        self.operations: list[Operation] = []
        self.calls: list[ModuleCall] = []
        self.measured: list[Callable[[], float]] = []
        self._open: list[int] = []
        self._serials: dict[int, int] = {}
        self._made = 0
        self._stopwatch = stopwatch
        self.is_paused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and records it."""
        kwargs = kwargs or {}
        if self.is_paused:
            return func(*args, **kwargs)
        return self.run(
            lambda: func(*args, **kwargs), lambda out: operation(func, args, kwargs, out, self.region)
        )

    def run(self, call: Callable[[], Any], describe: Callable[[Any], Operation | None]) -> Any:
        """Runs ``call`` and records it as one operation, unless ``describe`` finds that it moves nothing."""
        with self.paused():
            made, measured = self._stopwatch.time(call) if self._stopwatch else (call(), None)
        found = describe(made)
        if found is not None:
            self.operations.append(found)
            if measured:
                self.measured.append(measured)
        return made

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Operations inside the block are not recorded."""
        before, self.is_paused = self.is_paused, True
        try:
            yield
        finally:
            self.is_paused = before

    # ------------------------------------------------------------------ memory

    def region(self, tensor: torch.Tensor) -> Region:
        """Returns the memory that a tensor covers; expanded dimensions take none."""
        elements = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            elements *= size if stride else min(size, 1)
        where = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        return Region(self._serial(tensor), where, elements * tensor.element_size())

    def _serial(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._serials:
            self._serials[key] = self._made
            self._made += 1
            weakref.finalize(storage, self._serials.pop, key, None)
        return self._serials[key]

    def alive(self) -> frozenset[int]:
        """Returns the storages that were not freed yet."""
        return frozenset(self._serials.values())

    # ------------------------------------------------------------------ modules

    def entering(self, path: str) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        """Returns the hook that runs before the module at ``path``."""

        def entered(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            with self.paused():
                arguments = Arguments(
                    tuple(map(self._shown, args)), {name: self._shown(each) for name, each in kwargs.items()}
                )
            parent = self._open[-1] if self._open else None
            self._open.append(len(self.calls))
            start = len(self.operations)
            self.calls.append(ModuleCall(path, module, arguments, start, start, parent))

        return entered

    def left(self, _: nn.Module, __: Any, returned: Any) -> None:
        """The hook that runs after a module."""
        index = self._open.pop()
        with self.paused():
            self.calls[index] = replace(
                self.calls[index], end=len(self.operations), returned=self._shown(returned)
            )

    def _shown(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            known = self._integers.value(value) if self._integers else value
            return Shape(value.dtype, tuple(value.shape), _range(known))
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if type(value) in (tuple, list):
            return type(value)(map(self._shown, value))
        held = value if type(value) is dict else fields_of(value)
        return type(value) if held is None else {name: self._shown(each) for name, each in held.items()}


class _AttentionAsOne(TorchFunctionMode):
    """Records scaled dot product attention as one operation, whatever it is made of on this device."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one function of torch."""
        kwargs = kwargs or {}
        if func is not functional.scaled_dot_product_attention or self._recorder.is_paused:
            return func(*args, **kwargs)
        return self._recorder.run(
            lambda: func(*args, **kwargs), lambda out: attention(args, kwargs, out, self._recorder.region)
        )


def _range(value: torch.Tensor) -> tuple[int, int] | None:
    """The smallest element of a tensor of integers and one more than the largest; None without data."""
    whole = not value.is_floating_point() and not value.is_complex() and value.dtype is not torch.bool
    if not whole or not value.numel() or value.is_meta or type(value) is not torch.Tensor:
        return None
    with _disable_current_modes():  # a mode without data would give a tensor without
        return int(value.min()), int(value.max()) + 1
