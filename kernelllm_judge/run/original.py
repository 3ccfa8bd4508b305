"""Records what one call of the original does, in the form in which a worker reports a candidate's call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm_judge.core.arguments import nested
from kernelllm_judge.shared import leaves
from kernelllm_judge.shared.structure import flatten
from kernelllm_judge.shared.watch import OperationWatch
from kernelllm_judge.truth.prepared import PreparedProbe


@dataclass(frozen=True)
class OriginalCall:
    """What one call of the original did."""

    shared: list[list[str]]
    """Pairs of names whose memory overlaps, see ``leaves.shared``."""
    operations: Mapping[str, int]
    """Elements that each of torch's operations touched, by its name."""
    held: int
    """Bytes of memory that the outputs keep alive, see ``leaves.held``."""
    largest: int
    """Elements of the largest input or output."""


def call_original(prepared: PreparedProbe, arguments: dict[str, Any]) -> OriginalCall:
    """Calls the original with a prepared probe and records what it does.

    ``arguments`` are the probe's, where the original runs.
    """
    module = prepared.callable_module()
    with torch.no_grad(), OperationWatch(guarded=False) as watch:
        outputs = flatten(module(**nested(arguments)))[1]
    named: dict[str, Any] = {f"self.{k}": v for k, v in module.named_parameters()}
    named |= {f"self.{k}": v for k, v in module.named_buffers()} | arguments
    tensors = [t for t in (*arguments.values(), *outputs) if isinstance(t, torch.Tensor)]
    return OriginalCall(
        leaves.shared(outputs, named),
        dict(watch.elements),
        leaves.held(outputs, named),
        max((t.numel() for t in tensors), default=0),
    )
