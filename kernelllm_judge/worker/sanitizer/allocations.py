"""Watches what PyTorch allocates and writes during a call, to know memory that nobody has written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelllm_judge.core.dispatch_mode import DispatchMode
from kernelllm_judge.shared.watch import UNWRITTEN
from kernelllm_judge.worker.sanitizer.regions import Regions


class Allocations(DispatchMode):
    """A context that keeps ``Regions`` up to date with PyTorch's own operations."""

    def __init__(self, regions: Regions) -> None:
        """``regions`` records allocations and writes."""
        super().__init__()
        self._regions = regions
        self._paused = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """A context in which nothing is noted, for operations of Triton itself around a launch."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and notes what it allocates or writes."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._paused:
            return result
        if func._schema.name in UNWRITTEN:
            if result.numel():
                self._regions.allocated(result)
            return result
        for position, argument in enumerate(func._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[position] if position < len(args) else kwargs.get(argument.name)
                for tensor in tree_leaves(value):
                    if isinstance(tensor, torch.Tensor):
                        self._regions.filled(tensor)
        return result
