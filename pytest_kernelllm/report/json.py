"""The report as JSON: every verdict with every number behind it. Its schema is ``docs/schema/report.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_kernelllm.core.outcome import ADOPTED, Outcome, best
from pytest_kernelllm.core.records import SCHEMA, Environment


def build_report(
    environment: Environment, outcomes: Sequence[Outcome], patches: Mapping[str, str]
) -> dict[str, Any]:
    """The report's content.

    Args:
        environment: of the run.
        outcomes: of all candidates of all targets.
        patches: path of the patch by ``Target.id``.
    """
    targets = []
    for identity in dict.fromkeys(o.target.id for o in outcomes):
        own = [o for o in outcomes if o.target.id == identity]
        winner = best(own)
        targets.append(
            {
                "target": own[0].target.to_json(),
                "candidates": [_candidate(o) for o in own],
                "best": winner.index if winner else None,
                "patch": patches.get(identity),
            }
        )
    return {"schema": SCHEMA, "environment": environment.to_json(), "targets": targets}


def write_report(
    path: Path, environment: Environment, outcomes: Sequence[Outcome], patches: Mapping[str, str]
) -> None:
    """Write the report to ``path``, making its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    report = build_report(environment, outcomes, patches)
    path.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _candidate(outcome: Outcome) -> dict[str, Any]:
    candidate, verdict = outcome.candidate, outcome.verdict
    return {
        "index": "adopted" if outcome.index == ADOPTED else outcome.index,
        "generator": outcome.generator,
        "note": candidate.note if candidate else "",
        "kernel_hash": candidate.kernel_hash if candidate else None,
        "reason": outcome.reason,
        "tokens": outcome.tokens,
        "cost": outcome.cost,
        "cached": outcome.cached,
        "verdict": verdict.to_json() if verdict else None,
    }
