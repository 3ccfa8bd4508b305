"""``python -m tests.corpus``: judge the corpus and print the catch table, or show that every rule is needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelllm_judge.rules.catalog import RULES, SWITCHABLE

from . import table
from .corpus import NO_STATIC_CHECK, CorpusJudge, Outcome
from .entries import Entry, load


def main(argv: Sequence[str]) -> int:
    """Run the command; returns 1 if any outcome is unexpected."""
    parser = argparse.ArgumentParser(prog="python -m tests.corpus", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--no-static-check", action="store_true", help="only without the static check")
    parser.add_argument("--only", metavar="GLOB", default="*", help="entries by name, e.g. 'softmax__*'")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the table there as well")
    parser.add_argument("--jobs", type=int, default=2, help="candidates judged at once")
    parser.add_argument("--show", action="store_true", help="print the entries' whole texts instead")
    parser.add_argument("--mutate", action="store_true", help="switch off each rule in turn")
    parser.add_argument("--rule", metavar="NAME", action="append", help="with --mutate: only this rule")
    options = parser.parse_args(argv)
    entries = load(options.only)
    if options.show:
        print("\n".join(f"# {entry.name}: {entry.story}\n{entry.text}" for entry in entries))
        return 0
    corpus_judge = CorpusJudge(options.device, options.jobs)
    if options.mutate:
        return _mutate(corpus_judge, entries, options.rule)
    without = corpus_judge.judge(entries, NO_STATIC_CHECK, _report)
    full = without if options.no_static_check else corpus_judge.judge_with_static_check(entries, without)
    return conclude(full, without, corpus_judge.missing, options.markdown)


def conclude(
    full: Sequence[Outcome], without: Sequence[Outcome], missing: Sequence[str] = (), file: Path | None = None
) -> int:
    """Print the table and what came out wrong; the command's exit status.

    Args:
        full: outcomes with every rule in force.
        without: outcomes without the static check.
        missing: what this machine lacks to isolate a candidate fully.
        file: where the table is written as Markdown too.
    """
    printed = table.rows(full, without)
    print("\n" + table.plain(printed))
    wrong = list(dict.fromkeys(o for o in (*without, *full) if not o.right))
    for outcome in wrong:
        static_check = "off" if "static check" in outcome.disabled else "on"
        print(
            f"\n{outcome.entry.name}, static check {static_check}: expected {' or '.join(outcome.expected)}, "
            f"got {outcome.caught}\n    {outcome.reason}"
        )
    if missing:
        print(
            f"\nnot tried without the static check: escapes, because this machine is missing {' and '.join(missing)}"
        )
    print("\n" + table.summary(full, without))
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(table.markdown(printed), encoding="utf-8")
    return 1 if wrong else 0


def _mutate(corpus_judge: CorpusJudge, entries: list[Entry], rules: list[str] | None) -> int:
    """Switch off each rule: an entry that names it must come out differently. The first such entry is enough."""
    idle = []
    applied = {rule.name for rule in RULES if rule.device in ("any", corpus_judge.device)}
    for rule in rules or sorted(SWITCHABLE & applied):
        naming = [e for e in entries if (rule in e.rules or (rule == "static check" and e.only_static_check))]
        naming.sort(key=lambda entry: len(entry.rules))  # those that only this rule catches first
        for start in range(0, len(naming), corpus_judge.jobs):
            group = naming[start : start + corpus_judge.jobs]
            found = corpus_judge.judge(group, NO_STATIC_CHECK | {rule})
            # Without the static check, entries that only it can catch may have any outcome: there, acceptance counts.
            red = [o for o in found if o.status == "accepted" or not o.right]
            if red:
                print(f"{rule}: {', '.join(f'{o.entry.name} is {o.caught}' for o in red)}", flush=True)
                break
        else:
            print(f"{rule}: none of {len(naming)} comes out differently", flush=True)
            idle.append(rule)
    print(f"\nrules that no entry needs here: {', '.join(idle) or 'none'}")
    return 1 if idle else 0


def _report(outcome: Outcome) -> None:
    sign = "ok  " if outcome.right else "MISS"
    print(f"{sign} {outcome.entry.name:55} {outcome.caught:14} {outcome.seconds:5.1f} s", flush=True)
    if not outcome.right:
        print(f"     {outcome.reason}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
