"""Compares a candidate's outputs with the expected ones."""

from __future__ import annotations

import math

import torch

from pytest_kernelllm.core.records import Check
from pytest_kernelllm.judge.reference import numerics
from pytest_kernelllm.judge.reference.outputs import PreparedProbe
from pytest_kernelllm.judge.run.call import Judging, Uploaded, tensors_of


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


def check_updates(
    judging: Judging, uploaded: Uploaded, prepared: PreparedProbe, rule: str, context: str = ""
) -> None:
    """Compares every buffer that the original updates with what it holds then in float64.

    Args:
        judging: the candidate.
        uploaded: the probe's buffers, after a call.
        prepared: the probe.
        rule: the rule that a wrong buffer breaks.
        context: beginning of the reason, where the probe's description is not enough.

    Raises:
        Decision: a buffer is wrong.
    """
    where, references = prepared.probe.describe(), judging.references
    for i, name in enumerate(prepared.updates.names):
        buffer = uploaded.state[name]
        difference = numerics.compare(
            buffer, prepared.updates.expected, i, references.policy, references.tolerance
        )
        untouched = torch.equal(buffer, tensors_of(prepared.module)[name])
        what = "is not updated" if untouched else f"is updated wrongly {difference.detail}"
        wrong = (
            f"{context}`self.{name}` {what}; relative error {difference.measured:.3g}, "
            f"allowed {difference.allowed:.3g}, at {where}"
        )
        measured = difference.measured if math.isfinite(difference.measured) else "not finite"
        detail = difference.detail if difference.passed else wrong
        check = Check(f"update of `{name}`", difference.passed, measured, difference.allowed, detail)
        judging.findings.record(rule, check)


def outputs_pass(judging: Judging, uploaded: Uploaded, prepared: PreparedProbe) -> bool:
    """Whether all outputs are right, without recording checks."""
    references = judging.references
    return all(
        numerics.compare(buffer, prepared.expected, i, references.policy, references.tolerance).passed
        for i, (buffer, _) in enumerate(uploaded.outputs)
    )
