"""Says what to judge where a candidate is rejected: often the same kernel for fewer calls, so that the original runs the others.

Standard library only.
"""

from __future__ import annotations

from dataclasses import replace

from kernelllm_judge.core.kernel_module import KernelModuleError, read_supports, with_supports
from kernelllm_judge.core.records import Candidate, Verdict

ALIGNMENT = "alignment"
"""Name of the rule that a kernel breaks which needs aligned tensors."""


def following(candidate: Candidate, verdict: Verdict) -> Candidate | None:
    """Returns the candidate to judge where this one was rejected: the same for fewer calls, or the next of its completion."""
    if verdict.verdict != "rejected" or verdict.correct:
        return None
    if verdict.fence:
        return replace(candidate, source=verdict.fence)
    return _aligned(candidate) if verdict.rule == ALIGNMENT else candidate.next


def _aligned(candidate: Candidate) -> Candidate | None:
    """Returns the same kernel for aligned tensors only."""
    try:
        domains = read_supports(candidate.source)
    except KernelModuleError:
        return candidate.next
    if all(domain.aligned for domain in domains):
        return candidate.next
    narrowed = [replace(domain, aligned=True) for domain in domains]
    return replace(candidate, source=with_supports(candidate.source, narrowed))
