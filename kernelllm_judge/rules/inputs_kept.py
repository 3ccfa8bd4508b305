"""The rule ``inputs kept``: a call leaves inputs, parameters and buffers as they were, if the original does."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernelllm_judge.findings import Findings
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.rules.rule import Rule
from kernelllm_judge.run.call import ProbeRun, Uploaded, tensors_of
from kernelllm_judge.truth.prepared import PreparedProbe

NAME = "inputs kept"

CHUNK = 1 << 29
"""Bytes that are compared at once: a comparison takes as much memory again."""

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their size in bytes."""


@dataclass(frozen=True)
class InputsKept(Rule):
    """Inputs, parameters and buffers hold the same bytes as before the call, with the same shapes and strides."""

    name = NAME
    says = (
        "inputs, parameters and buffers hold the same bytes after the call, and no in-place operation was applied to one; "
        "apart from buffers that the original updates"
    )

    def check_run(self, run: ProbeRun) -> None:
        """Compares the shared buffers with what the judge wrote to them, and reads what the worker reports."""
        check_inputs_kept(run.uploaded, run.prepared, run.judging.findings)
        moved = run.reply.get("moved")
        if not isinstance(moved, list):
            raise WorkerDied("its reply to `run` is not a valid report")
        updated = {f"self.{name}" for name in run.prepared.updates.names}
        moved = [name for name in moved if name not in updated]
        named = ", ".join(f"`{name!s:.80}`" for name in moved[:4])
        broken = f"it applies an in-place operation to {named} at {run.where}"
        run.judging.findings.require(NAME, "applies no in-place operation to inputs", not moved, broken)


def check_inputs_kept(uploaded: Uploaded, prepared: PreparedProbe, findings: Findings) -> None:
    """Records whether all uploaded tensors are unchanged that the original leaves unchanged.

    Raises:
        Decision: a tensor was changed in place.
    """
    tensors = tensors_of(prepared.module)
    changed = [
        f"its input `{name}`"
        for name, buffer in uploaded.inputs.items()
        if not (uploaded.holds(prepared, name) or same_bytes(buffer, prepared.arguments[name].detach()))
    ]
    changed += [
        f"`self.{name}`"
        for name, buffer in uploaded.state.items()
        if name not in prepared.updates.names and not same_bytes(buffer, tensors[name].detach())
    ]
    broken = f"it changes {', '.join(changed)} in place at {prepared.probe.describe()}"
    findings.require(NAME, "leaves its inputs as they were", not changed, broken)


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of equal shape and dtype hold the same bytes. They may lie on different devices."""
    pairs = zip(_chunks(one), _chunks(other), strict=True)
    return all(torch.equal(a, b.to(a.device)) for a, b in pairs)


def _chunks(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns the bytes as integers of the elements' size, which PyTorch compares faster than single bytes."""
    integers = tensor.contiguous().reshape(-1).view(INTEGERS.get(tensor.itemsize, torch.uint8))
    return tuple(integers.split(CHUNK // integers.itemsize))
