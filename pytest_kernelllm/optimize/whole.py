"""Times the whole example with and without a kernel, where its calls alone do not tell whether it pays.

A call alone takes as long as Python needs to start it. In a model that keeps the GPU busy Python is ahead, so that a
kernel saves what it saves the GPU; in another one its dispatch may cost more than that.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import nn

from kernelllm_runtime.adopted import DISPATCHER
from kernelllm_runtime.instance import Swap, swap
from pytest_kernelllm.core.records import Ratio
from pytest_kernelllm.optimize.measured import middle_half, restored, synchronize

ROUNDS = 15
"""Rounds in which both ways take turns…"""
FEWEST = 5
"""…and fewer, but no less than these, where they take more than ``MOST_S``."""
MOST_S = 5.0


def gains_in_model(
    swaps: Iterable[Swap], alone: Mapping[str, Ratio | str], model: nn.Module, example: Callable[[], object]
) -> dict[str, Ratio | str]:
    """Returns how many times as fast the example is with a kernel in all modules where it does not pay alone, by path.

    It is the reason instead where the kernel fails. The modules have their original classes during other kernels' turns
    and afterwards, unless theirs pays. Buffers are as before afterwards.

    Args:
        swaps: the replaced modules.
        alone: how many times as fast each kernel is by itself, see ``measured.gains``.
        model: the model.
        example: calls it.
    """
    undecided: defaultdict[type[nn.Module], list[Swap]] = defaultdict(list)
    for each in swaps:
        gain = alone.get(each.path)
        if isinstance(gain, Ratio) and not gain.low > 1.0:
            undecided[each.after].append(each)
            each.undo()
    found: dict[str, Ratio | str] = {}
    for cls, group in undecided.items():
        with torch.no_grad(), restored(model):
            gain = _gain(group, example)
        failed = getattr(getattr(cls.forward, DISPATCHER, None), "off", None)
        found |= {each.path: failed or gain for each in group}
        if gain.low > 1.0 and not failed:
            _replace(group)
    return found


def gain_of_graphs(graphed: Swap, example: Callable[[], object]) -> Ratio:
    """Returns how many times as fast the example is where calls of the model are recorded as CUDA graphs, as they are afterwards.

    It may be slower: inputs and outputs are copied, and what a model does while it is recorded may be more work, because it
    cannot look at values then.
    """
    with torch.no_grad(), restored(graphed.module):
        gain = _gain([graphed], example)
    _replace([graphed])
    return gain


def _gain(group: Sequence[Swap], example: Callable[[], object]) -> Ratio:
    def seconds(kernels: bool) -> float:
        if kernels:
            _replace(group)
        synchronize()
        start = time.perf_counter()
        example()
        synchronize()
        took = time.perf_counter() - start
        for each in group:
            each.undo()
        return took

    for kernels in (False, True):  # compiles, and warms up
        seconds(kernels)
    longest = max(seconds(kernels) for kernels in (False, True))
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
