"""One question put to one worker: what it is given, what it must leave alone, and what it must write."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_kernelllm.judge import numerics
from pytest_kernelllm.judge.exam import Exam, Question
from pytest_kernelllm.judge.probes import elements
from pytest_kernelllm.judge.slabs import Arena, slab_bytes
from pytest_kernelllm.judge.state import plain, state_tree
from pytest_kernelllm.judge.supervisor import WorkerDied, WorkerHandle
from pytest_kernelllm.records import Check, Stage, Status, Timing


class Decided(Exception):
    """A verdict other than acceptance; ends the proceedings."""

    def __init__(self, verdict: Status, stage: Stage, reason: str, rule: str = "") -> None:
        """``reason`` is one sentence for people; ``rule`` names what a rejected candidate broke."""
        super().__init__(reason)
        self.verdict, self.stage, self.reason, self.rule = verdict, stage, reason, rule


@dataclass
class Proceedings:
    """What has been found so far about one candidate."""

    disabled: frozenset[str] = frozenset()
    """Rules that are not applied."""
    checks: list[Check] = field(default_factory=list)
    timing: list[Timing] = field(default_factory=list)
    cases: list[str] = field(default_factory=list)

    def check(self, stage: Stage, rule: str, check: Check) -> None:
        """Note a check made under ``rule``; a failed one is a rejection."""
        if rule in self.disabled:
            return
        self.checks.append(check)
        if not check.passed:
            raise Decided("rejected", stage, check.detail, rule)


def put(worker: WorkerHandle, arena: Arena, question: Question, exam: Exam, found: Proceedings) -> None:
    """Put one question: run, then look at what was written.

    Raises:
        Decided: the candidate failed a check, which ``found`` then holds.
        WorkerDied: the process is gone.
    """
    expected, where = question.expected, question.probe.describe()
    arguments, inputs = pose(worker, arena, question)
    slabs = [arena.slab(leaf.shape, leaf.dtype) for leaf in expected.original]
    for slab, _ in slabs:
        _poison(slab)
    if arena.device.type == "cuda":
        # The worker's stream knows nothing of this one: all that was written here must have arrived.
        torch.cuda.synchronize()
    try:
        reply = worker.ask("run", inputs=arguments, outputs=[description for _, description in slabs])
    except WorkerDied as death:
        size = elements(exam.subject.case(question.probe.case).domain, dict(question.probe.sizes))
        if death.hung and arena.device.type == "cpu" and size > exam.policy.cpu_elements:
            reason = f"inputs of {size:,} elements are too much for Triton's interpreter; declare smaller `dims` or use a GPU"
            raise Decided("inconclusive", "run", reason) from None
        raise
    if "error" in reply:
        raise Decided("rejected", "run", f"it fails at {where}: {said(reply)}", "run")
    wanted = [_leaf(leaf) for leaf in expected.original]
    got = {"structure": reply.get("structure"), "leaves": reply.get("leaves")}
    same = got == {"structure": expected.structure, "leaves": wanted}
    detail = (
        ""
        if same
        else f"it returns {_outline(got)}, the original {_outline({'structure': expected.structure, 'leaves': wanted})}, at {where}"
    )
    found.check("correctness", "types", Check("output types and shapes", same, None, None, detail))
    launched = reply.get("launches")
    busy = isinstance(launched, int) and launched > 0
    found.check(
        "correctness",
        "launches",
        Check(
            "launches its kernels",
            busy,
            str(launched),
            ">= 1",
            "" if busy else f"it launched no Triton kernel at {where}",
        ),
    )
    for name, slab in inputs.items():
        kept = torch.equal(_bits(slab), _bits(question.arguments[name]))
        found.check(
            "correctness",
            "inputs kept",
            Check(
                f"leaves `{name}` as it was",
                kept,
                None,
                None,
                "" if kept else f"it changes its input `{name}` in place at {where}",
            ),
        )
    for i, (slab, _) in enumerate(slabs):
        difference = numerics.compare(slab, expected, i, exam.policy, exam.tolerance)
        dtype = str(slab.dtype).removeprefix("torch.")
        detail = (
            ""
            if difference.passed
            else (
                f"output {i} ({dtype} {list(slab.shape)}) is wrong {difference.detail}; "
                f"relative error {difference.measured:.3g}, allowed {difference.allowed:.3g}, at {where}"
            )
        )
        found.check(
            "correctness",
            question.probe.rule,
            Check(
                f"output {i} at {where}",
                difference.passed,
                _number(difference.measured),
                difference.allowed,
                detail,
            ),
        )


def _needs(question: Question) -> int:
    """Bytes of arena that a question takes."""
    tensors = [
        *question.arguments.values(),
        *question.module.parameters(),
        *question.module.buffers(),
        *question.expected.original,
    ]
    return sum(slab_bytes(t.shape, t.dtype) for t in tensors if isinstance(t, torch.Tensor))


def pose(
    worker: WorkerHandle, arena: Arena, question: Question
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Write state and inputs of a question into the arena: the arguments as the worker reads them, and their slabs."""
    # Room for the timing's two further sets of inputs as well, so that they do not move the block.
    attach = arena.reserve(3 * _needs(question))
    tree = state_tree(question.module, arena)
    arguments: dict[str, Any] = {}
    inputs: dict[str, torch.Tensor] = {}
    for name, value in question.arguments.items():
        if isinstance(value, torch.Tensor):
            slab, description = arena.slab(value.shape, value.dtype)
            slab.copy_(value)
            inputs[name], arguments[name] = slab, {"slab": description}
        else:
            plain(arguments, name, value)
    reply = worker.ask("state", tree=tree, arena=attach)
    if "error" in reply:
        raise Decided(
            "inconclusive", "load", f"the worker could not be given the module's state: {said(reply)}"
        )
    return arguments, inputs


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "not finite"


def _poison(slab: torch.Tensor) -> None:
    """Fill an output with what no kernel writes: NaN, or a pattern."""
    if slab.is_floating_point():
        slab.fill_(float("nan"))
    else:
        slab.view(torch.uint8).fill_(1 if slab.dtype == torch.bool else 0x5A)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _leaf(leaf: torch.Tensor) -> dict[str, Any]:
    return {
        "type": "Tensor",
        "dtype": str(leaf.dtype).removeprefix("torch."),
        "shape": list(leaf.shape),
        "device": leaf.device.type,
    }


def _outline(outputs: dict[str, Any]) -> str:
    """``(float32 [8, 4], int64 [8])``: outputs in words, whatever a worker said they are."""
    leaves = outputs["leaves"] if isinstance(outputs["leaves"], list) else []
    parts = [
        f"{x.get('dtype', x.get('type'))} {x.get('shape', '')} on {x.get('device', '?')}"
        for x in leaves
        if isinstance(x, dict)
    ]
    return (
        (f"{outputs['structure'][0]} " if isinstance(outputs["structure"], list) else "")
        + "("
        + ", ".join(parts)
        + ")"
    )


def said(reply: dict[str, Any]) -> str:
    """A worker's error in words. It is untrusted text: bounded, and only shown."""
    error = reply.get("error")
    if not isinstance(error, dict):
        return "an unreadable answer"
    line = f" (line {error['line']})" if isinstance(error.get("line"), int) else ""
    return f"{str(error.get('type'))[:80]}: {str(error.get('message'))[:600]}{line}"
