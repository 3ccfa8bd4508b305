"""For pytest: judges in one go those whose tests were selected."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from .corpus import NO_STATIC_CHECK, CorpusJudge, Device, Outcome
from .entries import Entry


@dataclass(frozen=True)
class Judged:
    """Outcomes by entry, once with the static check and once without."""

    with_static_check: dict[Entry, Outcome]
    without: dict[Entry, Outcome]
    missing: tuple[str, ...]
    """What this machine lacks to isolate a candidate fully."""


def judge_selected(request: pytest.FixtureRequest, device: Device, jobs: int = 2) -> Judged:
    """The outcomes of all entries that some selected test of the requesting module is about."""
    entries: dict[Entry, None] = {}
    for item in request.session.items:
        entry = getattr(item, "callspec", None) and item.callspec.params.get("entry")
        if item.path == request.path and isinstance(entry, Entry):
            entries[entry] = None
    corpus_judge = CorpusJudge(device, jobs)
    without = corpus_judge.judge(entries, NO_STATIC_CHECK)
    full = corpus_judge.judge_with_static_check(entries, without)
    return Judged({o.entry: o for o in full}, {o.entry: o for o in without}, corpus_judge.missing)


def assert_right(judged: Judged, entry: Entry, *, static_check: bool) -> None:
    """Fail in words where an entry did not come out as it must; skip what this machine cannot hold back."""
    outcome = (judged.with_static_check if static_check else judged.without).get(entry)
    if outcome is None:
        pytest.skip(f"this machine lacks {' and '.join(judged.missing)}")
    assert outcome.right, (
        f"{outcome.entry.story} Expected {' or '.join(outcome.expected)}, got {outcome.caught}: {outcome.reason}"
    )
