"""Compares a candidate's outputs with the expected ones."""

from __future__ import annotations

import math

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.reference import numerics
from pytest_kernelllm.judge.reference.outputs import PreparedProbe
from pytest_kernelllm.judge.run.call import Judging, Uploaded


def check_outputs(
    judging: Judging, uploaded: Uploaded, prepared: PreparedProbe, rule: str, context: str = ""
) -> None:
    """Compares every output with float64, and records the differences under ``rule``.

    Args:
        judging: the candidate.
        uploaded: the buffers with its outputs.
        prepared: the probe that it was called with.
        rule: the rule that a wrong output breaks.
        context: beginning of the reason, where the probe's description is not enough.

    Raises:
        Decision: an output is wrong.
    """
    where, references = prepared.probe.describe(), judging.references
    for i, (buffer, _) in enumerate(uploaded.outputs):
        difference = numerics.compare(buffer, prepared.expected, i, references.policy, references.tolerance)
        dtype = str(buffer.dtype).removeprefix("torch.")
        wrong = (
            f"{context}output {i} ({dtype} {list(buffer.shape)}) is wrong {difference.detail}; "
            f"relative error {difference.measured:.3g}, allowed {difference.allowed:.3g}, at {where}"
        )
        measured = difference.measured if math.isfinite(difference.measured) else "not finite"
        detail = difference.detail if difference.passed else wrong
        check = Check(f"output {i} at {where}", difference.passed, measured, difference.allowed, detail)
        judging.findings.record(rule, check)


def outputs_pass(judging: Judging, uploaded: Uploaded, prepared: PreparedProbe) -> bool:
    """Whether all outputs are right, without recording checks."""
    references = judging.references
    return all(
        numerics.compare(buffer, prepared.expected, i, references.policy, references.tolerance).passed
        for i, (buffer, _) in enumerate(uploaded.outputs)
    )
