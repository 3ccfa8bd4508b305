"""Verdicts in words, for a failed item's report."""

from __future__ import annotations

from pathlib import Path

from kernelllm_judge.core.records import ADOPTED
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.words import command, from_here


def noted(outcome: Outcome) -> str:
    """Returns how an adopted kernel has become slower or wrong since it was recorded, or why it was not compared."""
    return outcome.history.note if outcome.history else ""


def explain(root: Path, outcome: Outcome, nodeid: str) -> str:
    """Explains why a candidate did not pass: the reason, where its text lies, and one command to see it again."""
    verdict, target = outcome.verdict, outcome.target
    assert verdict is not None
    lines = [f"{verdict.stage}: {verdict.reason}"] if verdict.reason else []
    lines += filter(None, [noted(outcome)])
    if outcome.candidate is not None:
        kernel = target.kernel if outcome.id == ADOPTED else outcome.id
        note = f" ({outcome.candidate.note})" if outcome.candidate.note else ""
        lines.append(f"kernel: {kernel}{note}, program {outcome.candidate.kernel_hash[:12]}")
    else:
        lines.append(f"candidate: {outcome.id}")
    lines.append(f"target: {target.path}:{target.line} {target.name}")
    lines.append(f"again: {command('pytest', '--kernelllm', from_here(root, nodeid)).strip('`')}")
    return "\n".join(lines)


def properties(outcome: Outcome) -> list[tuple[str, str]]:
    """Returns the verdict in names and values, which JUnit's XML has as properties of a test case."""
    verdict = outcome.verdict
    if verdict is None:
        return []
    named = {
        "verdict": verdict.verdict,
        "stage": verdict.stage,
        "rule": verdict.rule,
        "program": verdict.kernel_hash,
        "certificate": verdict.addresses.in_words() if verdict.addresses else "",
    }
    for name, ratio in (("speedup", verdict.speedup), ("speedup_compiled", verdict.speedup_compiled)):
        if ratio:
            named |= {
                name: f"{ratio.value:.4g}",
                f"{name}_low": f"{ratio.low:.4g}",
                f"{name}_high": f"{ratio.high:.4g}",
            }
    return [(f"kernelllm.{name}", value) for name, value in named.items() if value]
