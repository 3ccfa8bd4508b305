"""A question's backward pass, put to a worker: the gradients of its inputs and parameters."""

from __future__ import annotations

import math
from typing import Any

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.handle import WorkerHandle
from pytest_kernelllm.judge.reference import numerics
from pytest_kernelllm.judge.reference.outputs import Exam, Question
from pytest_kernelllm.judge.reference.probes import Probe
from pytest_kernelllm.judge.run import run as trial
from pytest_kernelllm.judge.run.run import Decided, Proceedings
from pytest_kernelllm.judge.shared.buffers import Arena, slab_bytes


def asks_gradients(exam: Exam, probe: Probe) -> bool:
    """Whether a probe is put backwards too: where the target needs gradients, at all sizes and seeds."""
    return exam.subject.case(probe.case).domain.grad and probe.rule in ("values", "sizes", "attributes")


def put_gradients(
    worker: WorkerHandle, arena: Arena, question: Question, exam: Exam, found: Proceedings
) -> None:
    """Put one question with its backward pass, and compare the gradients.

    Raises:
        Decided: a gradient is wrong, or none of them can be told from an impostor.
        ExamError: the original has no gradients.
        WorkerDied: the process is gone.
    """
    where = question.probe.describe()
    gradients = exam.gradients(question)
    flowing = [g for g in gradients.into if g is not None]
    room = sum(slab_bytes(t.shape, t.dtype) for t in (*flowing, *gradients.expected.original))
    posed = trial.pose(worker, arena, question, room=room)
    outputs: list[dict[str, Any] | None] = []
    for gradient in gradients.into:
        if gradient is None:
            outputs.append(None)
            continue
        slab, description = arena.slab(gradient.shape, gradient.dtype)
        slab.copy_(gradient)
        outputs.append(description)
    slabs = [arena.slab(leaf.shape, leaf.dtype) for leaf in gradients.expected.original]
    for slab, _ in slabs:
        trial.poison(slab)
    descriptions = [description for _, description in slabs]
    order = {"wrt": list(gradients.names), "outputs": outputs, "slabs": descriptions}
    trial.run(worker, arena, posed, question, exam, "watched", grad=order)
    trial.check_kept(posed, question, found)
    for i, (name, (slab, _)) in enumerate(zip(gradients.names, slabs, strict=True)):
        difference = numerics.compare(slab, gradients.expected, i, exam.policy, exam.tolerance)
        broken = (
            f"the gradient of `{name}` is wrong {difference.detail}; relative error {difference.measured:.3g}, "
            f"allowed {difference.allowed:.3g}, at {where}"
        )
        measured = difference.measured if math.isfinite(difference.measured) else "not finite"
        detail = "" if difference.passed else broken
        check = Check(f"gradient of `{name}`", difference.passed, measured, difference.allowed, detail)
        found.check("correctness", "gradients", check)
    if gradients.impostor is not None and question.impostor is None:
        reason = (
            f"{gradients.impostor} would pass as the gradients at {where}; give inputs that tell them apart"
        )
        raise Decided("inconclusive", "correctness", reason)
