"""The catch table, for people and for the docs."""

from __future__ import annotations

from collections.abc import Sequence

from .corpus import Outcome

HEADINGS = ("family", "candidate", "trick", "must be caught by", "with the static check", "without", "s")


def rows(with_static_check: Sequence[Outcome], without: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """One row a cheat, by family."""
    bare = {outcome.entry: outcome for outcome in without}
    cheats = [outcome for outcome in with_static_check if outcome.entry.kind == "cheat"]
    cheats.sort(key=lambda outcome: (outcome.entry.family, outcome.entry.name))
    return [
        (
            outcome.entry.family,
            outcome.entry.name,
            outcome.entry.story,
            " or ".join(outcome.entry.rules) or f"only the static check: {outcome.entry.only_static_check}",
            _mark(outcome),
            _mark(bare[outcome.entry]) if outcome.entry in bare and outcome.entry.rules else "–",
            f"{bare.get(outcome.entry, outcome).seconds:.1f}",
        )
        for outcome in cheats
    ]


def _mark(outcome: Outcome) -> str:
    return outcome.caught if outcome.right else f"{outcome.caught} (!)"


def summary(with_static_check: Sequence[Outcome], without: Sequence[Outcome]) -> str:
    """One line: how many cheats were caught for the stated reason, how many honest ones were refused."""
    cheats = [o for o in with_static_check if o.entry.kind == "cheat"]
    bare = [o for o in without if o.entry.rules]
    honest = [o for o in with_static_check if o.entry.kind != "cheat"]
    return (
        f"cheats caught for the stated reason {_count(cheats)} with the static check, {_count(bare)} without; "
        f"honest refused {sum(not o.right for o in honest)}/{len(honest)}"
    )


def _count(outcomes: Sequence[Outcome]) -> str:
    return f"{sum(o.right for o in outcomes)}/{len(outcomes)}"


def plain(table: Sequence[tuple[str, ...]]) -> str:
    """The table in columns, without the sentences."""
    shown = [tuple(cell for i, cell in enumerate(row) if i != 2) for row in [HEADINGS, *table]]
    shown = [tuple(cell[:40] for cell in row) for row in shown]
    widths = [max(len(row[i]) for row in shown) for i in range(len(shown[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    )


def markdown(table: Sequence[tuple[str, ...]]) -> str:
    """The table as GitHub's Markdown."""
    lines = [HEADINGS, tuple("---" for _ in HEADINGS), *table]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
