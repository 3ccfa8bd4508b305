"""Uploads a prepared probe to a worker and has the worker call ``forward``."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.core.shorten import LONGEST, whole
from kernelllm_judge.findings import Decision, Findings, OutOfMemory
from kernelllm_judge.handle import WorkerDied, WorkerHandle
from kernelllm_judge.leases import EVERYTHING, Lease
from kernelllm_judge.memory import is_scarce, ran_out
from kernelllm_judge.policy import Policy
from kernelllm_judge.run.module_tree import given_by, module_tree, plain
from kernelllm_judge.shared.buffers import Allocator, buffer_bytes
from kernelllm_judge.truth.outputs import ReferenceOutputs
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_judge.truth.probes import elements

STRANGE = frozenset({"stress", "nonfinite", "weights", "attributes", "integer inputs"})
"""Rules whose probes have inputs or weights of which decisions may fall otherwise and make no difference."""

Reply = dict[str, Any]
"""A worker's reply. Untrusted."""

TUNED = frozenset({"sizes", "values", "memory"})
"""Rules at whose probes the interpreter runs all configurations of autotuned kernels."""

_REPORTED = [[int, outcome, bool] for outcome in (bool, int, str)]
"""The types of a number, an outcome, and whether it was had in a backward pass."""


@dataclass(frozen=True)
class Judging:
    """What judging one candidate needs: its worker, shared memory, reference outputs and findings."""

    worker: WorkerHandle
    """A worker that has loaded the candidate."""
    allocator: Allocator
    """Allocates the buffers that judge and worker share."""
    references: ReferenceOutputs
    findings: Findings
    rng: random.Random
    """Source of choices that a candidate must not predict."""
    lease: Lease = EVERYTHING
    """The GPU memory that the worker may take."""

    @property
    def policy(self) -> Policy:
        """The thresholds in force."""
        return self.references.policy

    @property
    def on_gpu(self) -> bool:
        """Whether the candidate runs on a GPU, not in Triton's interpreter."""
        return accelerator.is_gpu(self.allocator.device)

    @property
    def first_run(self) -> str:
        """How the first call at a probe is made, see ``worker.Worker.run``."""
        return "sanitized" if "memory" in self.findings.rules and not self.on_gpu else "watched"


@dataclass(frozen=True)
class Uploaded:
    """A prepared probe in shared buffers: the worker's descriptions, and the judge's views of them."""

    arguments: dict[str, Any]
    """Arguments of ``forward`` as JSON, tensors by the description of their buffer."""
    inputs: dict[str, torch.Tensor]
    state: dict[str, torch.Tensor]
    """Parameters and buffers of the module by dotted name."""
    outputs: list[tuple[torch.Tensor, dict[str, Any]]]
    """For each output leaf the judge's view of its buffer, and the description for the worker."""

    def write_inputs(self, prepared: PreparedProbe) -> None:
        """Writes a probe's inputs to their buffers."""
        for name, buffer in self.inputs.items():
            buffer.copy_(prepared.arguments[name])


@dataclass(frozen=True)
class ProbeRun:
    """One call of a candidate at a prepared probe, and the worker's reply."""

    judging: Judging
    prepared: PreparedProbe
    uploaded: Uploaded
    reply: Reply

    @property
    def where(self) -> str:
        """The probe in words."""
        return self.prepared.probe.describe()


def run_probe(judging: Judging, prepared: PreparedProbe) -> ProbeRun:
    """Uploads a probe and has it called once, watched.

    Raises:
        Decision: the call failed, or ran out of memory (``OutOfMemory``).
        WorkerDied: the worker process ended.
    """
    uploaded = upload(judging, prepared)
    return ProbeRun(judging, prepared, uploaded, call(judging, uploaded, prepared, judging.first_run))


def upload(
    judging: Judging, prepared: PreparedProbe, *, shift: int = 0, off: int = 0, room: int = 0
) -> Uploaded:
    """Writes a prepared probe to shared buffers and sends the module's state to the worker.

    Args:
        shift: bytes by which all addresses are moved.
        off: elements by which every tensor starts later than at an aligned address.
        room: bytes to reserve for further buffers.

    Raises:
        Decision: the worker cannot attach to the buffers.
        WorkerDied: the worker process ended.
    """
    allocator = judging.allocator
    needed = room + sum(buffer_bytes(t.shape, t.dtype) for t in _tensors(prepared))
    attachment = allocator.reserve(needed, shift, off)
    state: dict[str, torch.Tensor] = {}
    given = given_by(judging.references.subject.case(prepared.probe.case).domain)
    tree = module_tree(prepared.module, allocator, state, given)
    arguments: dict[str, Any] = {}
    inputs: dict[str, torch.Tensor] = {}
    for name, value in prepared.arguments.items():
        if isinstance(value, torch.Tensor):
            buffer, description = allocator.buffer(value.shape, value.dtype)
            inputs[name], arguments[name] = buffer, {"buffer": description}
        else:
            plain(arguments, name, value)
    outputs = [allocator.buffer(leaf.shape, leaf.dtype) for leaf in prepared.expected.original]
    uploaded = Uploaded(arguments, inputs, state, outputs)
    uploaded.write_inputs(prepared)
    reply = judging.worker.request("state", tree=tree, allocator=attachment)
    if "error" in reply:
        if ran_out(reply["error"]):
            raise OutOfMemory(f"for a call at {prepared.probe.describe()}")
        reason = f"the worker could not receive the module's state: {error_text(reply)}"
        raise Decision("inconclusive", "load", reason)
    return uploaded


def refill(uploaded: Uploaded, prepared: PreparedProbe) -> None:
    """Writes the values of another probe with the same shapes to the same buffers."""
    tensors = tensors_of(prepared.module)
    for name, buffer in uploaded.state.items():
        buffer.copy_(tensors[name].detach())
    uploaded.write_inputs(prepared)


def call(judging: Judging, uploaded: Uploaded, prepared: PreparedProbe, how: str, **fields: Any) -> Reply:
    """Poisons the output buffers, resets what calls update, has ``forward`` called once, and returns the worker's reply.

    Raises:
        Decision: the call failed, accessed memory wrongly, or ran out of memory (``OutOfMemory``).
        WorkerDied: the worker process ended.
    """
    judging.findings.probe = prepared.probe
    for buffer, _ in uploaded.outputs:
        poison(buffer)
    tensors = tensors_of(prepared.module)
    for name in prepared.updates.names:  # an earlier call has updated them
        uploaded.state[name].copy_(tensors[name])
    hand_over(judging)
    descriptions = [description for _, description in uploaded.outputs]
    probe = prepared.probe
    recorded = "decisions" in judging.findings.rules and not judging.on_gpu and how != "no kernels"
    if recorded:
        fields["sites"] = fields.get("sites", {})
    if how == "sanitized":
        fields["all_configurations"] = probe.rule in TUNED
    try:
        reply = judging.worker.request(
            "run", inputs=uploaded.arguments, outputs=descriptions, how=how, **fields
        )
    except WorkerDied as death:
        size = elements(judging.references.subject.case(probe.case).domain, dict(probe.sizes))
        if death.hung and not judging.on_gpu and size > judging.policy.cpu_elements:
            reason = (
                f"inputs of {size:,} elements are too large for Triton's interpreter; "
                "declare smaller `dims` or use a GPU"
            )
            raise Decision("inconclusive", "run", reason) from None
        raise
    if how == "sanitized" and "error" not in reply:
        fault = reply.get("fault")
        sentence = f"{str(fault)[:600]}, at {probe.describe()}"
        judging.findings.require("memory", "memory accesses", fault is None, sentence)
    refuse_failure(judging, reply, prepared, f"at {probe.describe()}")
    judging.findings.reported = decided(reply.get("decided"))
    shows = not probe.directed or prepared.trivial is None
    if recorded and shows and not fields["sites"]:
        # Where inputs are all 0, for example, it may make no difference what a kernel decides.
        plain = "grad" in fields or not (probe.directed or probe.rule in STRANGE)
        try:
            judging.findings.sites.see(reply.get("sites"), probe, plain=plain)
        except ValueError as invalid:
            raise WorkerDied("its reply to `run` is not a valid report") from invalid
    return reply


def decided(reported: Any) -> list[tuple[int, bool | int | str, bool]]:
    """Returns what a worker reports of decisions: their numbers, outcomes, and whether in a backward pass.

    Raises:
        WorkerDied: it is no valid report.
    """
    if not isinstance(reported, list):
        raise WorkerDied("its reply to `run` is not a valid report")
    for each in reported:
        if not (isinstance(each, list) and [*map(type, each)] in _REPORTED):
            raise WorkerDied("its reply to `run` is not a valid report")
    return [(number, outcome, backward) for number, outcome, backward in reported]


def refuse_failure(judging: Judging, reply: Reply, prepared: PreparedProbe, where: str) -> None:
    """Rejects a candidate whose call failed; inconclusive if it ran out of memory while little was free, or if Triton's
    interpreter failed at a kernel: what a compiler refuses is rejected by the rule ``compile``, and the rest may run on a GPU.

    Raises:
        Decision: the call failed; the reason says where.
    """
    if "error" not in reply:
        return
    # Beside others: one of them may have taken the rest, and given it back since.
    if (
        prepared.on_gpu
        and ran_out(reply["error"])
        and (not judging.lease.all or is_scarce(prepared.bytes, judging.lease.worker))
    ):
        raise OutOfMemory(f"for a call {where}")
    if isinstance(reply["error"], dict) and reply["error"].get("interpreted") is True:
        reason = f"Triton's interpreter fails {where}: {error_text(reply)}; a GPU may not, so the verdict needs one"
        raise Decision("inconclusive", "run", reason)
    raise Decision("rejected", "run", f"it fails {where}: {error_text(reply)}", "run")


def error_text(reply: Reply) -> str:
    """Returns the error in a worker's reply, in words. The text is untrusted: its length is bounded."""
    error = reply.get("error")
    if not isinstance(error, dict):
        return "an invalid reply"
    line = f" (line {error['line']})" if isinstance(error.get("line"), int) else ""
    return f"{whole(error.get('type'), 80)}: {whole(error.get('message'), 2 * LONGEST)}{line}"


def poison(buffer: torch.Tensor) -> None:
    """Fills an output buffer with NaN, or a byte pattern, so that elements left unwritten are wrong."""
    if buffer.is_floating_point():
        buffer.fill_(float("nan"))
    else:
        buffer.view(-1).view(torch.uint8).fill_(1 if buffer.dtype == torch.bool else 0x5A)


def hand_over(judging: Judging) -> None:
    """Waits until the judge's writes are done: the worker's streams do not wait for the judge's."""
    if judging.on_gpu:
        accelerator.synchronize()


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Returns parameters and buffers by dotted name; a tensor with several names appears under each."""
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def _tensors(prepared: PreparedProbe) -> list[torch.Tensor]:
    arguments = [v for v in prepared.arguments.values() if isinstance(v, torch.Tensor)]
    return [*arguments, *tensors_of(prepared.module).values(), *prepared.expected.original]
