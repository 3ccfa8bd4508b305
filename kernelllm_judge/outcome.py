"""Turns the way in which judging ended into an outcome."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernelllm_judge.core.records import Stage, Status
from kernelllm_judge.findings import Decision, Findings, OutOfMemory, WorkerKilled, WorkerNotReady
from kernelllm_judge.launching import ServerFailed
from kernelllm_judge.truth.outputs import OriginalError

TRIES = 3
"""How many processes in a row must die by a signal until that counts as the candidate's own doing."""

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


def in_fresh_processes(judged: Callable[[], Outcome]) -> Outcome:
    """Judges again, in fresh processes, where a signal ended one: it may have come from outside."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(ServerFailed):
            outcome = judged()
            if not outcome.process_lost:
                return outcome
    return judged()


def outcome_of(proceed: Callable[[], None], findings: Findings, last: Stage) -> Outcome:
    """Returns how judging ends; ``last`` is the stage of a candidate that is accepted."""
    try:
        proceed()
    except Decision as end:
        lost = isinstance(end, WorkerKilled | WorkerNotReady) or COMPILER_HIT in end.reason
        named = any(text in end.reason for text in FULL_DISK)
        if end.verdict == "rejected" and end.rule in FAILURES and (named or end.on_full_disk):
            reason = end.reason if named else f"{end.reason}; {FULL_DISK[0]}"
            return Outcome(findings, "inconclusive", end.stage, reason, process_lost=lost)
        return Outcome(
            findings, end.verdict, end.stage, end.reason, end.rule, isinstance(end, OutOfMemory), lost
        )
    except OriginalError as error:
        return Outcome(findings, "inconclusive", "correctness", f"{error}")
    except torch.cuda.OutOfMemoryError:
        reason = "the judge ran out of GPU memory; free some or declare smaller `dims`"
        return Outcome(findings, "inconclusive", "correctness", reason, out_of_memory=True)
    return Outcome(findings, "accepted", last)
