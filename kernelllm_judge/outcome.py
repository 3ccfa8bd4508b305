"""Turns the way in which judging ended into an outcome."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

import torch

from kernelllm_judge.core.records import Stage, Status
from kernelllm_judge.findings import Decision, Findings, OutOfMemory, WorkerKilled, WorkerNotReady
from kernelllm_judge.truth.outputs import OriginalError

COMPILER_HIT = "PassManager::run failed"
"""Triton's error where a pass failed, also by a signal: LLVM catches SIGSEGV while it compiles."""

FULL_DISK = os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT)
"""In the texts of errors that are not the candidate's fault."""

FAILURES = frozenset(("load", "run", "compile"))
"""Rules by which a candidate is rejected because it fails. Where the disk is full, so do the compilers that Triton calls."""


@dataclass(frozen=True)
class Outcome:
    """How the judging of a candidate ended."""

    findings: Findings
    verdict: Status
    stage: Stage
    reason: str = ""
    rule: str = ""
    out_of_memory: bool = False
    """Whether it might have ended in another way with more GPU memory."""
    process_lost: bool = False
    """Whether a process ended that may have been killed from outside."""


def outcome_of(end: Exception, findings: Findings) -> Outcome:
    """Returns the outcome of judging that one of ``judging.ENDS`` ended."""
    if isinstance(end, OriginalError):
        return Outcome(findings, "inconclusive", "correctness", f"{end}")
    if isinstance(end, torch.cuda.OutOfMemoryError):
        reason = "the judge ran out of GPU memory; free some or declare smaller `dims`"
        return Outcome(findings, "inconclusive", "correctness", reason, out_of_memory=True)
    if not isinstance(end, Decision):
        raise end
    lost = isinstance(end, WorkerKilled | WorkerNotReady) or COMPILER_HIT in end.reason
    named = any(text in end.reason for text in FULL_DISK)
    if end.verdict == "rejected" and end.rule in FAILURES and (named or end.on_full_disk):
        reason = end.reason if named else f"{end.reason}; {FULL_DISK[0]}"
        return Outcome(findings, "inconclusive", end.stage, reason, process_lost=lost)
    out_of_memory = isinstance(end, OutOfMemory)
    return Outcome(findings, end.verdict, end.stage, end.reason, end.rule, out_of_memory, lost)
