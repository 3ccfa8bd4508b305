"""Times the whole example with and without kernels, where their calls alone do not tell whether they pay.

A call alone takes as long as Python needs to start it. In a model that keeps the GPU busy Python is ahead, so that a
kernel saves what it saves the GPU; in another one its dispatch may cost more than that. And in a compiled model a kernel
stands where ``torch.compile`` would fuse a module with its neighbours.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch
from torch import nn

from kernelllm_judge.core.records import Ratio
from kernelllm_runtime.adopted import DISPATCHER
from kernelllm_runtime.instance import Swap, swap
from pytest_kernelllm.beside.optimize.measured import middle_half, restored, synchronize

ROUNDS = 15
"""Rounds in which both ways take turns…"""
FEWEST = 5
"""…and fewer, but no less than these, where they take more than ``MOST_S``."""
MOST_S = 5.0


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


def gains_in_model(
    swaps: Iterable[Swap], alone: Mapping[str, Ratio | str], model: nn.Module, example: Callable[[], object]
) -> dict[str, Ratio | str]:
    """Returns how many times as fast the example is with a kernel in all modules where it does not pay alone, by path.

    It is the reason instead where the kernel fails. The modules have their original classes during other kernels' turns
    and afterwards, unless theirs pays. Buffers are as before afterwards.

    Args:
        alone: how many times as fast each kernel is by itself, see ``measured.gains``.
    """
    undecided = [
        each for each in swaps if isinstance(gain := alone.get(each.path), Ratio) and not gain.low > 1.0
    ]
    return _one_after_the_other(undecided, model, example, AS_IT_IS)


def gains_in_compiled_model(
    swaps: Iterable[Swap],
    alone: Mapping[str, Ratio | str],
    model: nn.Module,
    example: Callable[[], object],
    options: Mapping[str, Any],
) -> dict[str, Ratio | str]:
    """Returns how many times as fast the compiled example is with the kernels that beat their compiled modules, by path.

    All of them together, if that is as fast as ``COMPILED`` asks; otherwise, and where one of them fails, as ``gains_in_model`` does.

    Args:
        alone: how many times as fast each kernel is than its compiled module.
        options: TorchInductor's, with which the model is compiled for this.
    """
    paying = [each for each in swaps if isinstance(gain := alone.get(each.path), Ratio) and gain.low > 1.0]
    if not paying:
        return {}
    with _compiled(model, options):
        together = _tried(paying, model, example, COMPILED)
        if len({each.after for each in paying}) == 1 or all(
            pays(gain, COMPILED.least) for gain in together.values()
        ):
            return together
        return _one_after_the_other(paying, model, example, COMPILED)


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
        each.undo()
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
    found = {each.path: _failed(each) or gain for each in group}
    if all(pays(gain, trial.least) for gain in found.values()):
        _replace(group)
    return found


def pays(gain: Ratio | str, least: float) -> TypeGuard[Ratio]:
    """Returns whether something is surely more than ``least`` times as fast; not if it is a reason that it fails."""
    return isinstance(gain, Ratio) and gain.low > least


def _failed(each: Swap) -> str | None:
    """Returns why a kernel does not run any more, if it failed."""
    return getattr(getattr(each.after.forward, DISPATCHER, None), "off", None)


def _gain(group: Sequence[Swap], example: Callable[[], object], trial: Trial) -> Ratio:
    def seconds(kernels: bool) -> float:
        if kernels:
            _replace(group)
        for _ in range(trial.untimed):
            example()
        synchronize()
        start = time.perf_counter()
        for _ in range(trial.timed):
            example()
        synchronize()
        took = time.perf_counter() - start
        for each in group:
            each.undo()
        return took

    for kernels in (False, True):  # compiles, and warms up
        seconds(kernels)
    longest = max(seconds(kernels) for kernels in (False, True))
    longest *= (trial.untimed + trial.timed) / trial.timed
    rounds = max(FEWEST, min(ROUNDS, int(MOST_S / (2 * longest))))
    ratios = []
    for number in range(rounds):
        order = (False, True) if number % 2 else (True, False)
        took = {kernels: seconds(kernels) for kernels in order}
        ratios.append(took[False] / took[True])
    return middle_half(ratios)


def _replace(group: Sequence[Swap]) -> None:
    for each in group:
        swap(each.path, each.module, each.after)
