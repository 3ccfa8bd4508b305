"""``kernelllm explain``: says in full what became of a target's candidates."""

from __future__ import annotations

import argparse

from pytest_kernelllm.commands.common import OK, REJECTED
from pytest_kernelllm.commands.project import project_here
from pytest_kernelllm.commands.targets import NAMES, find_target
from pytest_kernelllm.core.narrow import narrow
from pytest_kernelllm.core.words import command, say

HELP = "Say in full why a target's candidates were accepted or rejected."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("target", metavar="TARGET", help=f"the target: {NAMES}")


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 1 if the store knows nothing of the target as its source is now."""
    target, store = find_target(options.target), project_here().store
    records = [record for record in store.verdicts if record.source_hash == target.source_hash]
    for record in records:
        verdict, note = record.verdict, record.candidate.note
        print(f"{verdict.kernel_hash[:12]}  {record.candidate.generator}{f' ({note})' if note else ''}")
        print(f"  {verdict.in_words()}")
        if verdict.accepted:
            for word, sentence in narrow(target, record.candidate.source).items():
                print(f"  {word}: {sentence}")
        for check in verdict.checks:
            if not check.passed:
                print(
                    f"  {check.name}: {check.measured}, allowed {check.allowed}; {check.detail}".rstrip("; ")
                )
    if not records:
        say(
            f"the store knows no candidate for {target.id}; run {command('pytest', '--kernelllm', options.target)}."
        )
    say(*store.problems)
    return OK if records else REJECTED
