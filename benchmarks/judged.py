"""Has kernels for targets written and judged."""

from __future__ import annotations

from collections.abc import Sequence

from kernelllm_judge.core.records import Target
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.session.session import Session


def outcomes(session: Session, targets: Sequence[Target]) -> dict[Target, list[Outcome]]:
    """Returns what became of each target's candidates, which are judged side by side, and prints it."""
    wanted = [(target, candidate) for target in targets for candidate in session.candidate_ids]
    for target, candidate in wanted:
        session.expect(target, candidate)
    found: dict[Target, list[Outcome]] = {target: [] for target in targets}
    for target, candidate in wanted:
        found[target].append(session.outcome(target, candidate))
        print(f"{target.name}, {candidate}: {found[target][-1].why or 'accepted'}", flush=True)
    return found
