"""Has kernels for a target written and judged."""

from __future__ import annotations

from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.records import Target
from pytest_kernelllm.session.session import Session


def outcomes(session: Session, target: Target) -> list[Outcome]:
    """Returns what became of each candidate, and prints it."""
    for candidate in session.candidate_ids:
        session.expect(target, candidate)
    found = []
    for candidate in session.candidate_ids:
        found.append(session.outcome(target, candidate))
        print(f"{target.name}, {candidate}: {found[-1].why or 'accepted'}", flush=True)
    return found
