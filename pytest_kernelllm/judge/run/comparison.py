"""Compares a candidate's outputs with the expected ones."""

from __future__ import annotations

import math
import random

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.reference import numerics
from pytest_kernelllm.judge.reference.prepared import PreparedProbe
from pytest_kernelllm.judge.run.call import Judging, Uploaded


def check_outputs(
    judging: Judging,
    uploaded: Uploaded,
    prepared: PreparedProbe,
    rule: str,
    context: str = "",
    sample: random.Random | None = None,
) -> None:
    """Compares every output with float64, and records the differences under ``rule``.

    Args:
        judging: the candidate.
        uploaded: the buffers with its outputs.
        prepared: the probe that it was called with.
        rule: the rule that a wrong output breaks.
        context: beginning of the reason, where the probe's description is not enough.
        sample: compares large outputs in a few places that it chooses.

    Raises:
        Decision: an output is wrong.
    """
    references = judging.references
    worst: dict[int, tuple[float, Check]] = {}
    for part in prepared.parts(sample):
        where = prepared.probe.describe() + (f", {part.stress} inputs" if part.stress else "")
        for i, (buffer, _) in enumerate(uploaded.outputs):
            found = numerics.compare(
                buffer[part.rows], part.expected, i, references.policy, references.tolerance
            )
            dtype = str(buffer.dtype).removeprefix("torch.")
            wrong = (
                f"{context}output {i} ({dtype} {list(buffer.shape)}) is wrong {found.detail}; "
                f"relative error {found.measured:.3g}, allowed {found.allowed:.3g}, at {where}"
            )
            measured = found.measured if math.isfinite(found.measured) else "not finite"
            detail = found.detail if found.passed else wrong
            check = Check(f"output {i} at {where}", found.passed, measured, found.allowed, detail)
            if not found.passed:
                judging.findings.record(rule, check)
            ratio = found.measured / found.allowed if found.allowed else found.measured
            if i not in worst or ratio > worst[i][0]:
                worst[i] = ratio, check
    for _, check in worst.values():
        judging.findings.record(rule, check)


def outputs_pass(judging: Judging, uploaded: Uploaded, prepared: PreparedProbe) -> bool:
    """Whether all outputs are right, without recording checks."""
    policy, tolerance = judging.references.policy, judging.references.tolerance
    return all(
        numerics.compare(buffer[part.rows], part.expected, i, policy, tolerance).passed
        for part in prepared.parts()
        for i, (buffer, _) in enumerate(uploaded.outputs)
    )
