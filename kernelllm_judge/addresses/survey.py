"""Has ``forward`` run without values at many sizes, and divides the domain into parts in which its launches differ in numbers only."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, product
from typing import Any

import torch

from kernelllm_judge.addresses.launches import Run, Untraced, read, texts_of
from kernelllm_judge.core.targets import Case, TensorSpec
from kernelllm_judge.handle import WorkerDied, WorkerHandle
from kernelllm_judge.run.module_tree import given_by, module_tree, plain

CALLS = 48
"""Calls that are asked for at once, at most…"""

ONCE = 2.0
"""…and seconds that they may take."""

INSIDE = 6
"""Sizes inside a part that are tried besides its corners."""

LATE = "there was no time to run it at more sizes"

BLOCK = 1024
"""Which a kernel's blocks divide, mostly."""

Sizes = tuple[int, ...]

Part = tuple[tuple[int, int], ...]
"""A part of a domain: the inclusive range of each dimension."""


class _NoMemory:
    """Stands in for an allocator where tensors have no memory."""

    def __init__(self) -> None:
        self.count = 0

    def buffer(self, shape: Sequence[int], dtype: torch.dtype) -> tuple[torch.Tensor, dict[str, Any]]:
        """Returns a tensor without memory and its description for the worker."""
        self.count += 1  # a worker knows buffers by where they begin
        described = {"offset": self.count, "shape": list(shape), "dtype": str(dtype).removeprefix("torch.")}
        return torch.empty(shape, dtype=dtype, device="meta"), described


def tree_of(module: torch.nn.Module, case: Case) -> dict[str, Any]:
    """Describes a module's state to a worker, without its values."""
    return module_tree(module, _NoMemory(), {}, given_by(case.domain))  # type: ignore[arg-type]


@dataclass
class Survey:
    """Runs of one case and one choice of configurations, by sizes."""

    worker: WorkerHandle
    case: Case
    ranges: Mapping[str, tuple[int, int]]
    tree: Mapping[str, Any]
    texts: dict[str, tuple[str, str]]
    """Names and intermediate code of kernels, for all surveys of one worker."""
    deadline: float
    """When no more runs are asked for, by ``time.monotonic``."""
    variant: int = 0
    runs: dict[Sizes, Run | str] = field(default_factory=dict)
    """A text says why there is none."""
    slowest: float = 0.01
    """Seconds of a call, so far."""

    def named(self, sizes: Sizes) -> dict[str, int]:
        """Returns sizes by the names of their dimensions."""
        return dict(zip(self.ranges, sizes, strict=True))

    def run(self, wanted: Sequence[Sizes]) -> None:
        """Has ``forward`` run at sizes, where it has not."""
        new = [sizes for sizes in dict.fromkeys(wanted) if sizes not in self.runs]
        while new:
            # Host code may take long, at large sizes above all.
            start, count = time.monotonic(), max(1, min(CALLS, int(ONCE / self.slowest)))
            if start > self.deadline:
                self.runs |= dict.fromkeys(new, LATE)
                return
            some, new = new[:count], new[count:]
            calls = [{"inputs": self._inputs(self.named(sizes)), "variant": self.variant} for sizes in some]
            reply = self.worker.request("trace", tree=self.tree, calls=calls, grad=self.case.domain.grad)
            reports = reply.get("runs")
            if not isinstance(reports, list) or len(reports) != len(some):
                raise WorkerDied("its reply to `trace` is not a valid report")
            self.texts |= texts_of(reply)
            for sizes, report in zip(some, reports, strict=True):
                try:
                    self.runs[sizes] = read(report)
                except Untraced as why:
                    self.runs[sizes] = f"{why}"
            self.slowest = max(self.slowest, (time.monotonic() - start) / len(some))

    def _inputs(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, spec in self.case.domain.inputs.items():
            if isinstance(spec, TensorSpec):
                shape = [sizes[each] if isinstance(each, str) else each for each in spec.shape]
                values[name] = {"buffer": {"offset": 0, "shape": shape, "dtype": spec.dtype}}
            else:
                plain(values, name, spec)
        return values

    def key(self, sizes: Sizes) -> object:
        """Equal at sizes where launches differ in numbers only."""
        run = self.runs[sizes]
        return run if isinstance(run, str) else run.form

    def split(self, part: Part) -> list[Part]:
        """Divides a part where launches change along one of its edges; an empty list if none is found."""
        for axis, (low, high) in enumerate(part):
            powers = [1 << power for power in range(high.bit_length())]
            near = {low, high, *(p + step for p in powers for step in (0, 1))}
            line = sorted(each for each in near if low <= each <= high)
            for corner in zip(*part, strict=True):
                self.run([_with(corner, axis, size) for size in line])
                for first, last in pairwise(line):
                    if not self._differ(corner, axis, first, last):
                        continue
                    while last - first > 1:
                        middle = (first + last) // 2
                        self.run([_with(corner, axis, middle)])
                        changed = self._differ(corner, axis, first, middle)
                        first, last = (first, middle) if changed else (middle, last)
                    return [(*part[:axis], ends, *part[axis + 1 :]) for ends in ((low, first), (last, high))]
        return []

    def _differ(self, own: Sizes, axis: int, first: int, second: int) -> bool:
        return self.key(_with(own, axis, first)) != self.key(_with(own, axis, second))


def _with(sizes: Sizes, axis: int, size: int) -> Sizes:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def tried(part: Part, rng: random.Random) -> tuple[list[Sizes], bool]:
    """Returns the sizes of a part that are tried, and whether there are no others in it."""
    if math.prod(high - low + 1 for low, high in part) <= 8:
        return list(product(*(range(low, high + 1) for low, high in part))), True
    corners = islice(product(*(dict.fromkeys(ends) for ends in part)), 16)
    inner = {tuple(rng.randint(low, high) for low, high in part) for _ in range(INSIDE + len(part))}
    return list(dict.fromkeys([*corners, *sorted(inner)])), False


def along(part: Part) -> Iterator[Sizes]:
    """Yields the sizes along each edge of a part that begins at its smallest ones, by turns and upwards."""
    low = tuple(first for first, _ in part)
    for step in range(max(last - first for first, last in part) + 1):
        for axis, (first, last) in enumerate(part):
            if first + step <= last:
                yield _with(low, axis, first + step)


def around_blocks(part: Part) -> list[Sizes]:
    """Returns sizes of a part that fill blocks of kernels exactly, and the next larger ones."""
    whole = tuple(max(low, min(high, BLOCK)) for low, high in part)
    above = [_with(whole, axis, min(whole[axis] + 1, high)) for axis, (_, high) in enumerate(part)]
    return [whole, *above]
