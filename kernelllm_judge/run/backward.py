"""Runs a probe with its backward pass in a worker, and compares the gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelllm_judge.run.call import Judging, Uploaded, call, poison, upload
from kernelllm_judge.run.comparison import check_of
from kernelllm_judge.run.right_before import same_bytes
from kernelllm_judge.shared.buffers import buffer_bytes
from kernelllm_judge.truth import numerics
from kernelllm_judge.truth.gradients import Gradients, flat
from kernelllm_judge.truth.prepared import PreparedProbe


@dataclass(frozen=True)
class Backward:
    """A probe in shared buffers, with those that its backward pass reads and writes."""

    uploaded: Uploaded
    gradients: Gradients
    """The expected gradients."""
    asked: Sequence[str]
    """Names of those that the worker was asked for."""
    written: Sequence[torch.Tensor]
    """What the worker wrote, one buffer for each of ``asked``."""
    incoming: Sequence[tuple[torch.Tensor, torch.Tensor]]
    """The shared memory of each gradient of an output, and what the judge wrote there."""
    request: Mapping[str, Any]
    """What the worker is asked for, see ``truth.gradients``."""

    def of(self, gradients: Gradients) -> Backward:
        """Returns the same for another probe with the same shapes and names; see ``renew``."""
        memory = [flat(g) for g in gradients.into if g is not None]
        incoming = [(buffer, new) for (buffer, _), new in zip(self.incoming, memory, strict=True)]
        return replace(self, gradients=gradients, incoming=incoming)

    def renew(self) -> None:
        """Writes the gradients of outputs to the shared buffers, and poisons those that the worker writes."""
        for buffer, memory in self.incoming:
            buffer.copy_(memory)
        for buffer in self.written:
            poison(buffer)


def run_backward(
    judging: Judging,
    prepared: PreparedProbe,
    again: str = "",
    frozen: Callable[[str], bool] = lambda name: False,
) -> Backward:
    """Uploads a probe and has it called once with its backward pass.

    Args:
        frozen: whether an input or parameter requires no gradient.

    Raises:
        Decision: the call failed.
        OriginalError: the original has no gradients.
        WorkerDied: the worker process ended.
    """
    gradients = judging.references.gradients(prepared)
    asked = [name for name in gradients.names if not frozen(name)]
    backward = upload_backward(judging, prepared, gradients, asked, again)
    call(judging, backward.uploaded, prepared, judging.first_run, grad=backward.request)
    return backward


def upload_backward(
    judging: Judging, prepared: PreparedProbe, gradients: Gradients, asked: Sequence[str], again: str = ""
) -> Backward:
    """Uploads a probe, with what a call with its backward pass reads and writes. Raises as ``run.call.upload``.

    ``asked`` names those of the probe's gradients that the worker computes; for ``again`` see ``run_backward``.
    """
    incoming = [flat(g) for g in gradients.into if g is not None]
    expected = [gradients.expected.original[gradients.names.index(name)] for name in asked]
    room = sum(buffer_bytes(t.shape, t.dtype) for t in (*incoming, *expected))
    uploaded = upload(judging, prepared, room=room)
    outputs: list[dict[str, Any] | None] = []
    lent: list[tuple[torch.Tensor, torch.Tensor]] = []
    for gradient in gradients.into:
        if gradient is None:
            outputs.append(None)
            continue
        memory = flat(gradient)
        buffer, description = judging.allocator.buffer(memory.shape, memory.dtype)
        lent.append((buffer, memory))
        layout = {"shape": list(gradient.shape), "strides": list(gradient.stride())}
        outputs.append({"buffer": description, **layout})
    buffers = [judging.allocator.buffer(leaf.shape, leaf.dtype) for leaf in expected]
    descriptions = [description for _, description in buffers]
    request = {"wrt": asked, "outputs": outputs, "buffers": descriptions, "again": again}
    backward = Backward(uploaded, gradients, asked, [buffer for buffer, _ in buffers], lent, request)
    backward.renew()
    return backward


def check_incoming(judging: Judging, prepared: PreparedProbe, backward: Backward, rule: str) -> None:
    """Compares the gradients that were passed to a backward pass with what they were, and records that under ``rule``.

    Raises:
        Decision: it changed one of them.
    """
    kept = all(same_bytes(buffer, memory) for buffer, memory in backward.incoming)
    broken = f"its backward pass changes the gradients of its outputs in place at {prepared.probe.describe()}"
    judging.findings.require(rule, "leaves gradients of outputs as they were", kept, broken)


def gradients_pass(judging: Judging, backward: Backward) -> bool:
    """Whether all gradients are right, without recording checks."""
    references = judging.references
    return all(
        numerics.compare(
            buffer,
            backward.gradients.expected,
            backward.gradients.names.index(name),
            references.policy,
            references.tolerance,
        ).passed
        for name, buffer in zip(backward.asked, backward.written, strict=True)
    )


def check_gradients(
    judging: Judging, prepared: PreparedProbe, backward: Backward, rule: str, context: str = ""
) -> None:
    """Compares every gradient with float64, and records the differences under ``rule``.

    ``context`` is the beginning of the reason, where the probe's description is not enough.

    Raises:
        Decision: a gradient is wrong, or the backward pass changed a gradient that was passed to it.
    """
    check_incoming(judging, prepared, backward, rule)
    references, gradients = judging.references, backward.gradients
    for name, buffer in zip(backward.asked, backward.written, strict=True):
        i = gradients.names.index(name)
        how = i, references.policy, references.tolerance
        difference = numerics.compare(buffer, gradients.expected, *how)
        if not difference.passed:
            difference = numerics.compare(buffer, references.gradients(prepared, closely=True).expected, *how)
        wrong = f"{context}the gradient of `{name}` is wrong"
        check = check_of(f"gradient of `{name}`", difference, wrong, prepared.probe.describe())
        judging.findings.record(rule, check)
    judging.findings.count_decisions()
