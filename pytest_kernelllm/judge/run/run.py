"""One question put to one worker: what it is given, what it must leave alone, and what it must write."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_kernelllm.core.records import Check, Stage, Status, Timing
from pytest_kernelllm.judge.handle import WorkerDied, WorkerHandle
from pytest_kernelllm.judge.memory import is_scarce, ran_out
from pytest_kernelllm.judge.reference import numerics
from pytest_kernelllm.judge.reference.outputs import Exam, Question
from pytest_kernelllm.judge.reference.probes import elements
from pytest_kernelllm.judge.run.module_tree import plain, state_tree
from pytest_kernelllm.judge.shared import leaves
from pytest_kernelllm.judge.shared.buffers import Arena, slab_bytes

Reply = dict[str, Any]
"""What a worker says. Untrusted."""


class Decided(Exception):
    """A verdict other than acceptance; ends the proceedings."""

    def __init__(self, verdict: Status, stage: Stage, reason: str, rule: str = "") -> None:
        """``reason`` is one sentence for people; ``rule`` names what a rejected candidate broke."""
        super().__init__(reason)
        self.verdict, self.stage, self.reason, self.rule = verdict, stage, reason, rule


class NoRoom(Decided):
    """A worker ran out of GPU memory where little was free, which is nobody's fault."""

    def __init__(self, where: str) -> None:
        """``where``: at which question."""
        reason = f"there was too little GPU memory for a call {where}; free some, or declare `dims` that reach lower"
        super().__init__("inconclusive", "run", reason)


@dataclass
class Proceedings:
    """What has been found so far about one candidate."""

    disabled: frozenset[str] = frozenset()
    """Rules that are not applied."""
    checks: list[Check] = field(default_factory=list)
    timing: list[Timing] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)

    def check(self, stage: Stage, rule: str, check: Check) -> None:
        """Note a check made under ``rule``; a failed one is a rejection. Of equal ones the worst is kept."""
        if rule in self.disabled:
            return
        if not check.passed:
            self.checks.append(check)
            raise Decided("rejected", stage, check.detail, rule)
        same = next((i for i, seen in enumerate(self.checks) if seen.name == check.name), None)
        if same is None:
            self.checks.append(check)
        elif isinstance(check.measured, float) and check.measured > float(self.checks[same].measured or 0):
            self.checks[same] = check

    def holds(self, rule: str, name: str, passed: bool, broken: str) -> None:
        """Note whether something without a number holds; ``broken`` says what if not."""
        self.check("correctness", rule, Check(name, passed, None, None, "" if passed else broken))


@dataclass(frozen=True)
class Posed:
    """A question's place in an arena: how the worker finds it, and the judge's own views of it."""

    arguments: dict[str, Any]
    inputs: dict[str, torch.Tensor]
    state: dict[str, torch.Tensor]
    outputs: list[tuple[torch.Tensor, dict[str, Any]]]


def pose(worker: WorkerHandle, arena: Arena, question: Question, *, shift: int = 0, room: int = 0) -> Posed:
    """Lay a question out in the arena, ``shift`` bytes later than usual, and give the worker its state.

    ``room``: bytes for further slabs.
    """
    needed = room + sum(slab_bytes(t.shape, t.dtype) for t in _tensors(question))
    attachment = arena.reserve(needed, shift)
    state: dict[str, torch.Tensor] = {}
    tree = state_tree(question.module, arena, state)
    arguments: dict[str, Any] = {}
    inputs: dict[str, torch.Tensor] = {}
    for name, value in question.arguments.items():
        if isinstance(value, torch.Tensor):
            slab, description = arena.slab(value.shape, value.dtype)
            slab.copy_(value)
            inputs[name], arguments[name] = slab, {"slab": description}
        else:
            plain(arguments, name, value)
    outputs = [arena.slab(leaf.shape, leaf.dtype) for leaf in question.expected.original]
    reply = worker.ask("state", tree=tree, arena=attachment)
    if "error" in reply:
        if ran_out(reply["error"]):
            raise NoRoom(f"at {question.probe.describe()}")
        reason = f"the worker could not be given the module's state: {said(reply)}"
        raise Decided("inconclusive", "load", reason)
    return Posed(arguments, inputs, state, outputs)


def refill(posed: Posed, question: Question) -> None:
    """Write the values of another question of the same shapes to the same addresses."""
    tensors = _state(question.module)
    for name, slab in posed.state.items():
        slab.copy_(tensors[name].detach())
    for name, slab in posed.inputs.items():
        slab.copy_(question.arguments[name])


def run(
    worker: WorkerHandle, arena: Arena, posed: Posed, question: Question, exam: Exam, how: str, **fields: Any
) -> dict[str, Any]:
    """Have ``forward`` called once, after poisoning the outputs: the worker's reply.

    Raises:
        Decided: the call failed, or found no memory (``NoRoom``).
        WorkerDied: the process is gone.
    """
    for slab, _ in posed.outputs:
        poison(slab)
    settle(arena)
    descriptions = [description for _, description in posed.outputs]
    try:
        reply = worker.ask("run", inputs=posed.arguments, outputs=descriptions, how=how, **fields)
    except WorkerDied as death:
        size = elements(exam.subject.case(question.probe.case).domain, dict(question.probe.sizes))
        if death.hung and arena.device.type == "cpu" and size > exam.policy.cpu_elements:
            reason = f"inputs of {size:,} elements are too much for Triton's interpreter; declare smaller `dims` or use a GPU"
            raise Decided("inconclusive", "run", reason) from None
        raise
    refuse_failure(reply, question, f"at {question.probe.describe()}")
    return reply


def refuse_failure(reply: Reply, question: Question, where: str) -> None:
    """A call that failed is held against the candidate, unless it found no memory where hardly any was left.

    Raises:
        Decided: it failed; the reason says where.
    """
    if "error" not in reply:
        return
    if question.expected.original[0].is_cuda and ran_out(reply["error"]) and is_scarce(question.bytes):
        raise NoRoom(where)
    raise Decided("rejected", "run", f"it fails {where}: {said(reply)}", "run")


def put(worker: WorkerHandle, arena: Arena, question: Question, exam: Exam, found: Proceedings) -> Reply:
    """Put one question: run, then look at what was written and what should not have been.

    Raises:
        Decided: the candidate failed a check, which ``found`` then holds.
        WorkerDied: the process is gone.
    """
    posed = pose(worker, arena, question)
    reply = run(worker, arena, posed, question, exam, "watched")
    where = question.probe.describe()
    check_types(reply, question, found)
    check_launches(reply, f"at {where}", found)
    check_kept(posed, question, found)
    broken = reply.get("broken")
    said_so = [str(item)[:200] for item in broken] if isinstance(broken, list) else ["an unreadable place"]
    if not arena.intact():
        said_so.append("before or behind one of its inputs, parameters or outputs")
    found.holds("guards", "guard zones", not said_so, f"it writes {', and '.join(said_so)}, at {where}")
    check_outputs(posed, question, exam, found, question.probe.rule)
    return reply


def check_types(reply: Reply, question: Question, found: Proceedings) -> None:
    """Structure, types, shapes and strides of the outputs, as the worker describes them, are the original's."""
    wanted = {
        "structure": question.expected.structure,
        "leaves": [leaves.describe(leaf) for leaf in question.expected.original],
    }
    got = {"structure": reply.get("structure"), "leaves": reply.get("leaves")}
    broken = f"it returns {_outline(got)}, the original {_outline(wanted)}, at {question.probe.describe()}"
    found.holds("types", "output types and shapes", got == wanted, broken)


def check_launches(reply: Reply, where: str, found: Proceedings) -> None:
    """The call launched some kernel of the candidate's own. To be asked of every call: results may be kept."""
    launched = reply.get("launches")
    busy = isinstance(launched, int) and launched > 0
    found.holds("launches", "launches its kernels", busy, f"it launched no Triton kernel {where}")


def check_kept(posed: Posed, question: Question, found: Proceedings) -> None:
    """Inputs, parameters and buffers hold the bytes they held before."""
    where = question.probe.describe()
    tensors = _state(question.module)
    pairs = [(f"its input `{name}`", slab, question.arguments[name]) for name, slab in posed.inputs.items()]
    pairs += [(f"`self.{name}`", slab, tensors[name]) for name, slab in posed.state.items()]
    changed = [name for name, slab, value in pairs if not torch.equal(_bits(slab), _bits(value.detach()))]
    broken = f"it changes {', '.join(changed)} in place at {where}"
    found.holds("inputs kept", "leaves its inputs as they were", not changed, broken)


def check_outputs(posed: Posed, question: Question, exam: Exam, found: Proceedings, rule: str) -> None:
    """What stands in the output slabs is right."""
    where = question.probe.describe()
    for i, (slab, _) in enumerate(posed.outputs):
        difference = numerics.compare(slab, question.expected, i, exam.policy, exam.tolerance)
        dtype = str(slab.dtype).removeprefix("torch.")
        broken = (
            f"output {i} ({dtype} {list(slab.shape)}) is wrong {difference.detail}; "
            f"relative error {difference.measured:.3g}, allowed {difference.allowed:.3g}, at {where}"
        )
        measured = difference.measured if math.isfinite(difference.measured) else "not finite"
        detail = difference.detail if difference.passed else f"{_UNDER.get(rule, '')}{broken}"
        check = Check(f"output {i} at {where}", difference.passed, measured, difference.allowed, detail)
        found.check("correctness", rule, check)


_UNDER = {
    "twin": "after inputs that differ in a few values only, ",
    "fresh address": "with the same values at other addresses, ",
    "repeat": "in another run of the same question, ",
    "recheck": "in the timed loop, ",
}
"""How a reason begins where the probe alone does not say what was special."""


def outputs_pass(posed: Posed, question: Question, exam: Exam) -> bool:
    """Whether what stands in the output slabs would count as right."""
    return all(
        numerics.compare(slab, question.expected, i, exam.policy, exam.tolerance).passed
        for i, (slab, _) in enumerate(posed.outputs)
    )


def settle(arena: Arena) -> None:
    """Wait for all that the judge has written: the worker's streams know nothing of the judge's."""
    if arena.device.type == "cuda":
        torch.cuda.synchronize()


def _tensors(question: Question) -> list[torch.Tensor]:
    arguments = [v for v in question.arguments.values() if isinstance(v, torch.Tensor)]
    return [*arguments, *_state(question.module).values(), *question.expected.original]


def _state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    # A tensor with several names has a slab under each.
    return {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }


def poison(slab: torch.Tensor) -> None:
    """Fill an output with what no kernel writes: NaN, or a pattern."""
    if slab.is_floating_point():
        slab.fill_(float("nan"))
    else:
        slab.view(torch.uint8).fill_(1 if slab.dtype == torch.bool else 0x5A)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _outline(outputs: dict[str, Any]) -> str:
    """``(float32 [8, 4], int64 [8])``: outputs in words, whatever a worker said they are."""
    flat = outputs["leaves"] if isinstance(outputs["leaves"], list) else []
    parts = [
        f"{x.get('dtype', x.get('type'))} {x.get('shape', '')} with strides {x.get('strides', '?')} on {x.get('device', '?')}"
        + ("" if x.get("type") == "Tensor" else f" of type {str(x.get('type'))[:80]}")
        for x in flat
        if isinstance(x, dict)
    ]
    structure = outputs["structure"]
    kind = f"{structure[0]} " if isinstance(structure, list) and structure else ""
    return f"{kind}({', '.join(parts)})"[:600]


def said(reply: Reply) -> str:
    """A worker's error in words. It is untrusted text: bounded, and only shown."""
    error = reply.get("error")
    if not isinstance(error, dict):
        return "an unreadable answer"
    line = f" (line {error['line']})" if isinstance(error.get("line"), int) else ""
    return f"{str(error.get('type'))[:80]}: {str(error.get('message'))[:600]}{line}"
