"""The rules about side effects: a call changes nothing around it, and needs nothing of it."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.findings import Findings
from kernelllm_judge.handle import WorkerDied
from kernelllm_judge.rules.rule import CaseRun, Rule
from kernelllm_judge.run.call import ProbeRun, Reply, Uploaded, call, tensors_of
from kernelllm_judge.run.comparison import check_outputs, check_updates
from kernelllm_judge.run.right_before import same_bytes
from kernelllm_judge.truth.prepared import PreparedProbe
from kernelllm_runtime.states import STATES


@dataclass(frozen=True)
class InputsKept(Rule):
    """Inputs, parameters and buffers hold the same bytes as before the call, with the same shapes and strides."""

    name = "inputs kept"
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
        run.judging.findings.require(self.name, "applies no in-place operation to inputs", not moved, broken)


def check_inputs_kept(uploaded: Uploaded, prepared: PreparedProbe, findings: Findings) -> None:
    """Records whether all uploaded tensors are unchanged that the original leaves unchanged.

    Raises:
        Decision: a tensor was changed in place.
    """
    tensors = tensors_of(prepared.module)
    changed = [
        f"its input `{name}`"
        for name, buffer in uploaded.inputs.items()
        if not same_bytes(buffer, prepared.arguments[name].detach())
    ]
    changed += [
        f"`self.{name}`"
        for name, buffer in uploaded.state.items()
        if name not in prepared.updates.names and not same_bytes(buffer, tensors[name].detach())
    ]
    broken = f"it changes {', '.join(changed)} in place at {prepared.probe.describe()}"
    findings.require(InputsKept.name, "leaves its inputs as they were", not changed, broken)


@dataclass(frozen=True)
class BuffersUpdated(Rule):
    """Buffers that the original updates, as batch normalisation does in train mode, hold the right values after the call."""

    name = "buffers updated"
    says = "buffers that the original updates hold the right values after the call"

    def check_run(self, run: ProbeRun) -> None:
        """Compares the shared buffers with what the original leaves in its own."""
        check_updates(run.judging, run.uploaded, run.prepared, self.name)


@dataclass(frozen=True)
class StateKept(Rule):
    """What a call leaves behind in the module's names, another one could read; no probe shows what the thousandth call does."""

    name = "state kept"
    says = "a call leaves nothing behind that a later one could read, but what caches plain values by plain arguments"

    def check_run(self, run: ProbeRun) -> None:
        """Reads what the worker reports."""
        kept = run.reply.get("kept")
        if not isinstance(kept, list):
            raise WorkerDied("its reply to `run` is not a valid report")
        held = " and ".join(f"{each!s:.120}" for each in kept[:2])
        findings = run.judging.findings
        findings.require(
            self.name, "keeps nothing between calls", not kept, f"it keeps {held}, at {run.where}"
        )


@dataclass(frozen=True)
class Surroundings(Rule):
    """No call depends on what differs between a judge's process and a user's, nor changes it."""

    name = "surroundings"
    says = (
        "outputs are the same in every state in which kernels run, such as inference mode; a call asks for nothing of the target "
        "but the values that the original reads, draws no random numbers, and leaves its arguments and PyTorch's modes as they were"
    )

    def check_run(self, run: ProbeRun) -> None:
        """Reads what the worker reports."""
        self._check(run.reply, f"at {run.where}", run.judging.findings)

    def check_case(self, case: CaseRun) -> None:
        """Runs the probe again in other surroundings."""
        judging, prepared, uploaded = case.first.judging, case.first.prepared, case.elsewhere
        for number, how in enumerate(("elsewhere", "frozen"), 1):
            reply = call(judging, uploaded, prepared, how)
            named = ", ".join(state.name for state in STATES if state.call == number)
            self._check(reply, f"with {named}, at {case.first.where}", judging.findings)
            check_outputs(judging, uploaded, prepared, self.name, f"with {named}, ")

    def _check(self, reply: Reply, where: str, findings: Findings) -> None:
        """Records whether a call asked for no more than it is given, and left everything around it as it was."""
        asked, left = reply.get("asked"), reply.get("left")
        if not (isinstance(asked, list) and isinstance(left, list)):
            raise WorkerDied("its reply to `run` is not a valid report")
        what = ", ".join(f"{each!s:.80}" for each in asked[:2])
        findings.require(self.name, "asks for values only", not asked, f"it asks for {what}, {where}")
        named = ", ".join(f"{each!s:.80}" for each in left[:4])
        findings.require(
            self.name,
            "leaves PyTorch's modes and its arguments",
            not left,
            f"it leaves {named} changed, {where}",
        )
