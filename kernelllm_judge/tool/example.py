"""Says in words what a reproducer shows: the smallest inputs that are found at which a rejected candidate is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from kernelllm_judge.core.records import EXAMPLE, Check, Verdict
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.tool.reproducer import Unwritable, smallest
from kernelllm_runtime.leaves import leaves

OTHER_SEED = 1 << 30
"""Added to a probe's seed: what is shown is never asked."""

MOST = 24
"""Elements of a tensor that are written out."""


def with_example(judge: Judge, criteria: Criteria, source: str, verdict: Verdict) -> Verdict:
    """Returns a rejection with the smallest inputs at which the candidate breaks the same rule, as its ``example``.

    It is run again, in the judge's isolated worker. The inputs are drawn under a seed under which nothing is judged. Other
    verdicts, and those for which nothing is found, stay as they are.

    Raises:
        launching.ServerFailed: the judge's own processes cannot start.
    """
    probe = judge.rejected_at
    if verdict.verdict != "rejected" or probe is None:
        return verdict
    other = replace(probe, seed=probe.seed + OTHER_SEED, weights=None)
    try:
        saved, reason = smallest(judge, criteria, source, verdict.rule, other)
    except Unwritable:
        return verdict
    inputs = [leaf for name, value in saved["inputs"].items() for leaf in leaves(name, value)]
    lines = [f"{name} = {_shown(value)}" for name, value in inputs]
    lines += [f"self.{name} = {_shown(value)}" for name, value in saved["state"].items()]
    check = Check(EXAMPLE, True, None, None, "\n".join([reason, *lines]))
    return replace(verdict, checks=(*verdict.checks, check))


def _shown(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    dtype, elements = str(value.dtype).removeprefix("torch."), value.flatten()
    held = ", ".join(f"{each:.6g}" for each in elements[:MOST].tolist())
    more = ", …" if elements.numel() > MOST else ""
    return f"{dtype} {list(value.shape)}, row by row: {held}{more}"
