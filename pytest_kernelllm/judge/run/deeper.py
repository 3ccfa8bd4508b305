"""What one look at a case's main question does not show: caches, races, decoys, and torch doing the work."""

from __future__ import annotations

import random
from typing import Any

import torch

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.handle import WorkerDied, WorkerHandle
from pytest_kernelllm.judge.policy import Policy
from pytest_kernelllm.judge.reference.outputs import Exam, Question
from pytest_kernelllm.judge.run import run as trial
from pytest_kernelllm.judge.run import torch_work
from pytest_kernelllm.judge.run.run import Proceedings, Reply
from pytest_kernelllm.judge.shared import leaves
from pytest_kernelllm.judge.shared.buffers import ALIGNMENT, Arena
from pytest_kernelllm.judge.shared.structure import flatten
from pytest_kernelllm.judge.shared.watch import Watch


def look_deeper(
    worker: WorkerHandle,
    arena: Arena,
    question: Question,
    reply: Reply,
    exam: Exam,
    found: Proceedings,
    dice: random.Random,
) -> None:
    """Put a case's main question again, in ways that an honest kernel does not notice.

    Args:
        worker: holds the candidate.
        arena: shared with it.
        question: has been answered rightly once.
        reply: what the worker said then.
        exam: of the target.
        found: receives the checks.
        dice: the judge's secret.

    Raises:
        Decided: the candidate failed a check.
        WorkerDied: the process is gone.
    """
    _compare_with_original(question, reply, exam.policy, found)
    where = question.probe.describe()
    shift = ALIGNMENT * dice.randrange(1, 64)
    posed = trial.pose(worker, arena, question, shift=shift)
    again = trial.run(worker, arena, posed, question, exam, "watched")
    trial.check_launches(again, f"when the same values came at other addresses, at {where}", found)
    trial.check_outputs(posed, question, exam, found, "fresh address")
    on_gpu = arena.device.type == "cuda"
    for _ in range(exam.policy.gpu_repeats if on_gpu else exam.policy.cpu_repeats):
        again = trial.run(worker, arena, posed, question, exam, "backwards")
        trial.check_launches(again, f"when the same question came again, at {where}", found)
        trial.check_outputs(posed, question, exam, found, "repeat")
    if question.impostor is None and "decoy" not in found.disabled:
        found.holds(
            "decoy",
            "outputs need the kernels",
            not _right_without_kernels(worker, arena, posed, question, exam),
            f"its kernels are decoys: without them the outputs are just as right, at {where}",
        )


def _compare_with_original(question: Question, reply: Reply, policy: Policy, found: Proceedings) -> None:
    """Shared memory and torch's operations, against those of one call of the original."""
    with torch.no_grad(), Watch(guarded=False) as watch:
        outputs = flatten(question.module(**question.arguments))[1]
    named: dict[str, Any] = {f"self.{k}": v for k, v in question.module.named_parameters()}
    named |= {f"self.{k}": v for k, v in question.module.named_buffers()} | question.arguments
    allowed = leaves.shared(outputs, named)
    pairs, ops = reply.get("shared"), reply.get("operations")
    if not (
        isinstance(pairs, list)
        and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
        and isinstance(ops, dict)
        and all(isinstance(n, int) and n >= 0 for n in ops.values())
    ):
        raise WorkerDied("it answered `run` with something else than a report")
    extra = [pair for pair in pairs if pair not in allowed]
    where = question.probe.describe()
    broken = f"{extra[0][1]!s:.80} shares memory with {extra[0][0]!s:.80} at {where}" if extra else ""
    found.holds("aliasing", "memory of its own", not extra, broken)
    tensors = [t for t in (*question.arguments.values(), *outputs) if isinstance(t, torch.Tensor)]
    size = max((t.numel() for t in tensors), default=0)
    share, said = torch_work.share(ops, torch_work.vendor_kinds(watch.elements), size, policy)
    detail = f"{said}, at {where}" if said else ""
    found.check(
        "correctness",
        "torch's share",
        Check("torch's share of the work", not said, round(share, 4), policy.torch_share, detail),
    )


def _right_without_kernels(
    worker: WorkerHandle, arena: Arena, posed: trial.Posed, question: Question, exam: Exam
) -> bool:
    try:
        trial.run(worker, arena, posed, question, exam, "no kernels")
    except trial.NoRoom:
        raise
    except trial.Decided:  # a call that fails without its kernels needs them
        return False
    return trial.outputs_pass(posed, question, exam)


def check_device_time(
    worker: WorkerHandle, posed: trial.Posed, question: Question, policy: Policy, found: Proceedings
) -> None:
    """On a GPU, most of a call's time passes in the candidate's own kernels.

    Time in a vendor's library counts for neither side, where the target itself leaves that work to one.
    """
    kinds = torch_work.vendor_kinds(torch_work.operations(question.module, question.arguments))
    # The GPU is kept busy until all of the call is in its queue; else it would wait, and the wait count as torch's.
    replies = [worker.ask("share", inputs=posed.arguments, flushes=16) for _ in range(5)]
    for reply in replies:
        trial.refuse_failure(reply, question, f"when its time is measured at {question.probe.describe()}")
    figures = [(r.get("own"), r.get("all")) for r in replies]
    if not all(isinstance(x, float) and 0 <= x < 1e7 for pair in figures for x in pair):
        raise WorkerDied("it answered `share` without proper times")
    own, whole = min(figures, key=lambda pair: float(pair[1] or 0))
    assert own is not None and whole is not None
    share = min(own / whole, 1.0) if whole else 0.0
    others = (whole - own) * 1000.0
    enough = share >= policy.device_share or others <= policy.glue_us or bool(kinds)
    detail = (
        ""
        if enough
        else f"its own kernels take {share:.0%} of a call's {whole * 1000.0:.1f} µs on the GPU; torch takes the rest"
    )
    check = Check("share of the GPU's time", enough, round(share, 4), policy.device_share, detail)
    found.check("timing", "device time", check)
