"""Times the whole example with and without kernels: placement is decided on the model, as it runs.

In a model that keeps the GPU busy Python is ahead, so that a kernel saves what it saves the GPU; in another one its
dispatch may cost more than that. And in a compiled model a kernel stands where ``torch.compile`` would fuse a module with
its neighbours.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import nn

from kernelllm_judge.core.records import Ratio
from kernelllm_runtime.adopted import DISPATCHER
from kernelllm_runtime.instance import Swap, swap
from pytest_kernelllm.beside.optimize.turns import in_turns, middle_half


@dataclass(frozen=True)
class Trial:
    """How the example is timed after a replacement, and how fast it must be."""

    least: float
    """How many times as fast it must surely be with a kernel."""
    untimed: int
    """Calls of the example that are not timed…"""
    timed: int
    """…and calls after them that are timed."""


AS_IT_IS = Trial(least=1.0, untimed=0, timed=1)
COMPILED = Trial(least=1.02, untimed=1, timed=2)
"""In the first call Dynamo looks for its code; two are timed for examples that take turns. Each compares all that the kernels'
domains name, and how long that takes differs from process to process by more than the rounds of one show."""


def gains(
    swaps: Sequence[Swap],
    model: nn.Module,
    example: Callable[[], object],
    options: Mapping[str, Any] | None = None,
) -> dict[str, Ratio | str]:
    """Returns how many times as fast the example is with kernels, by path; the reason instead where a kernel fails.

    All of them together, if that pays; otherwise, and where one of them fails, one class after the other. The modules
    have their original classes afterwards where theirs does not pay. Buffers are as before afterwards.

    Args:
        swaps: the replaced modules.
        model: the model that the example calls.
        options: TorchInductor's, with which the model is compiled for this; None: it is not compiled.
    """
    if not swaps:
        return {}
    for each in swaps:
        each.undo()
    trial = AS_IT_IS if options is None else COMPILED
    with nullcontext() if options is None else _compiled(model, options):
        together = _tried(swaps, model, example, trial)
        if len({each.after for each in swaps}) == 1 or all(
            pays(gain, trial.least) for gain in together.values()
        ):
            return together
        return _one_after_the_other(swaps, model, example, trial)


@contextmanager
def _compiled(model: nn.Module, options: Mapping[str, Any]) -> Iterator[None]:
    """A context in which calls of the model are compiled."""
    before = model._compiled_call_impl
    model.compile(options=dict(options))
    try:
        yield
    finally:
        model._compiled_call_impl = before


def _one_after_the_other(
    swaps: Sequence[Swap], model: nn.Module, example: Callable[[], object], trial: Trial
) -> dict[str, Ratio | str]:
    groups: defaultdict[type[nn.Module], list[Swap]] = defaultdict(list)
    for each in swaps:
        groups[each.after].append(each)
    found: dict[str, Ratio | str] = {}
    for group in groups.values():
        found |= _tried(group, model, example, trial)
    return found


def _tried(
    group: Sequence[Swap], model: nn.Module, example: Callable[[], object], trial: Trial
) -> dict[str, Ratio | str]:
    """Times the example with a group and without it, and leaves its modules replaced if all that pays."""
    with torch.no_grad(), restored(model):
        gain = _gain(group, example, trial)
    found = {
        each.path: getattr(getattr(each.after.forward, DISPATCHER, None), "off", None) or gain
        for each in group
    }
    if all(pays(gain, trial.least) for gain in found.values()):
        _replace(group)
    return found


def pays(gain: Ratio | str, least: float) -> TypeGuard[Ratio]:
    """Returns whether something is surely more than ``least`` times as fast; not if it is a reason that it fails."""
    return isinstance(gain, Ratio) and gain.low > least


def _gain(group: Sequence[Swap], example: Callable[[], object], trial: Trial) -> Ratio:
    def seconds(kernels: int) -> float:
        if kernels:
            _replace(group)
        took = timed(example, trial)
        for each in group:
            each.undo()
        return took

    calls = (trial.untimed + trial.timed) / trial.timed
    return middle_half(*in_turns(seconds, 2, calls=calls))


def timed(example: Callable[[], object], trial: Trial) -> float:
    """Returns the seconds of the example's timed calls."""
    for _ in range(trial.untimed):
        example()
    _synchronize()
    start = time.perf_counter()
    for _ in range(trial.timed):
        example()
    _synchronize()
    return time.perf_counter() - start


def _replace(group: Sequence[Swap]) -> None:
    for each in group:
        swap(each.path, each.module, each.after)


@contextmanager
def restored(module: nn.Module) -> Iterator[None]:
    """A context after which a module's buffers, which calls may update or replace, are the same with the values from before."""
    holders = [(each, dict(each._buffers)) for each in module.modules()]
    before = [(buffer, buffer.clone()) for buffer in module.buffers() if _writable(buffer)]
    try:
        yield
    finally:
        for each, buffers in holders:
            for name, buffer in buffers.items():
                each._buffers[name] = buffer  # one by one, which is all that a ScriptModule can do
        # Buffers of a model that was made in inference mode cannot be written elsewhere.
        with torch.inference_mode():
            for buffer, value in before:
                buffer.copy_(value)


def _writable(buffer: torch.Tensor) -> bool:
    """Whether a call can update a buffer in place: PyTorch refuses where elements share memory, as after ``expand``."""
    if buffer.layout is not torch.strided:
        return True
    return all(size < 2 or stride for size, stride in zip(buffer.shape, buffer.stride(), strict=True))


def _synchronize() -> None:
    """Waits for the GPU, if there is one."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
