"""The report as JSON: every verdict with every number behind it. Its schema is ``docs/schema/report.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from kernelllm_judge.core.records import Environment
from kernelllm_judge.core.spans import Span
from kernelllm_runtime.source.resolve import ProjectSources
from pytest_kernelllm.core.outcome import Outcome, best
from pytest_kernelllm.core.usage import Usage
from pytest_kernelllm.discover.adoption import adoption_state
from pytest_kernelllm.discover.original import original
from pytest_kernelllm.report.read import Report, ReportedCandidate, ReportedRound, ReportedTarget

MOST_SPANS = 20_000
"""Spans that a report holds: the longest ones. So many take 4 MiB."""


def build_report(
    environment: Environment,
    outcomes: Sequence[Outcome],
    patches: Mapping[str, str],
    usage: Usage | None = None,
    spans: Sequence[Span] = (),
    *,
    root: Path | None = None,
    stopped: str = "",
) -> Report:
    """Makes the report.

    Args:
        usage: how busy the slots were; None where nothing was judged.
        spans: what all processes did; of too many, the longest are kept.
        root: project root, where the targets' files are read; None leaves out what is found there.
        stopped: why the run ended before everything was tried; empty if it did not.
    """
    project = ProjectSources(root.absolute()) if root else None
    targets = []
    for identity in dict.fromkeys(o.target.id for o in outcomes):
        own = [o for o in outcomes if o.target.id == identity]
        winner = best(own)
        candidates = tuple(map(_candidate, own))
        targets.append(
            ReportedTarget(
                own[0].target,
                candidates,
                str(winner.id) if winner else None,
                patches.get(identity),
                next((o.history for o in own if o.history), None),
                original(project, own[0].target) if project else None,
                root is not None and adoption_state(root, own[0].target) == "stale",
            )
        )
    longest = sorted(spans, key=lambda span: -span.seconds)[:MOST_SPANS]
    created = datetime.now(UTC).isoformat(timespec="seconds")
    return Report(
        environment,
        tuple(targets),
        usage,
        created,
        stopped,
        tuple(sorted(longest, key=lambda span: span.begin)),
    )


def write_report(path: Path, report: Report) -> None:
    """Writes the report to ``path``, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report.to_json(), indent=1, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _candidate(outcome: Outcome) -> ReportedCandidate:
    candidate = outcome.candidate
    return ReportedCandidate(
        str(outcome.id),
        outcome.generator,
        candidate.note if candidate else "",
        candidate.kernel_hash if candidate else None,
        outcome.reason,
        outcome.tokens,
        outcome.cost,
        outcome.cached,
        outcome.verdict,
        tuple(map(_round, outcome.rounds)),
        candidate.source if candidate else "",
    )


def _round(outcome: Outcome) -> ReportedRound:
    kernel_hash = outcome.candidate.kernel_hash if outcome.candidate else None
    return ReportedRound(
        kernel_hash, outcome.reason, outcome.tokens, outcome.cost, outcome.cached, outcome.verdict
    )
