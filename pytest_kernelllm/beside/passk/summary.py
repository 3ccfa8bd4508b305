"""pass@k of a pytest run, in a line or two below its table: a plugin that the run registers."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_kernelllm.beside.passk.records import Sample
from pytest_kernelllm.beside.passk.scores import sample_of, score, together
from pytest_kernelllm.beside.passk.table import figure, translation_note
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.words import counted


def pytest_kernelllm_summary(
    outcomes: Sequence[Outcome], generators: Sequence[str], samples: int
) -> list[str]:
    """Returns pass@k of each generator that draws samples; nothing where there is one sample for each target.

    Inductor's variants are left out: they are the same every time, so chance plays no part. So are targets
    of which only some candidates were selected (``-k``, ``--lf``): such a choice is no sample.
    """
    lines: list[str] = []
    if samples < 2:
        return lines
    for name in generators:
        own = [o for o in outcomes if o.generator == name]
        targets = list(dict.fromkeys(o.target.id for o in own))
        drawn = [_drawn([o for o in own if o.target.id == t], name, samples) for t in targets]
        if name != "inductor" and (counted := [s for s in drawn if s]):
            lines += _lines(counted, len(targets), f"{name}: " if len(generators) > 1 else "")
    return lines


def _drawn(outcomes: Sequence[Outcome], generator: str, samples: int) -> list[Sample]:
    """One sample a completion of one target; none where it cannot be counted."""
    if len(outcomes) < samples:
        return []
    # A folder may hold fewer files than were asked for; a model that writes nothing has failed.
    written = [o for o in outcomes if o.verdict is not None or generator != "files"]
    return [sample_of(o) for o in written]


def _lines(drawn: Sequence[Sequence[Sample]], targets: int, prefix: str) -> list[str]:
    at = sorted({1, min(map(len, drawn))})
    total = together([score(samples, at, timed=False) for samples in drawn], at)
    passes = "  ".join(f"pass@{p.k} {figure(p.value)}" for p in total.pass_at)
    of = "" if len(drawn) == targets else f"{len(drawn)} of "
    over = f"over {of}{counted(targets, 'target')}"
    note = translation_note(total)
    return [f"{prefix}{passes} {over}", *([f"{prefix}{note}"] if note else [])]
