"""``kernelllm generate``: prints candidates for one target as they are generated, and judges them on request."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.core.records import CandidateId, Completion, Target
from pytest_kernelllm.commands.common import (
    OK,
    REJECTED,
    CommandError,
    add_generator_options,
    add_judge_options,
    settings_of,
)
from pytest_kernelllm.commands.targets import NAMES, find_target
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.core.words import say
from pytest_kernelllm.generate.protocol import GenerateError
from pytest_kernelllm.session.session import Session, open_session

HELP = "Generate candidates for one target and print them."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("target", help=NAMES)
    parser.add_argument("-k", "--samples", type=int, metavar="K", help="how many candidates (default 4)")
    parser.add_argument(
        "--raw", action="store_true", help="print the raw completions instead of kernel modules"
    )
    parser.add_argument("--verify", action="store_true", help="also judge the candidates")
    add_generator_options(parser)
    add_judge_options(parser)


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 0 if a candidate was generated (with ``--verify``: accepted), else 1."""
    settings = settings_of(options)
    target = find_target(options.target)
    try:
        with open_session(Path.cwd(), settings, progress=say) as session:
            written = 0
            for draft, completion in session.drafts(target):
                written += _print(draft, completion, raw=options.raw)
            if options.verify:
                verified = [_verdict(session, target, each) for each in session.candidate_ids]
                return OK if any(verified) else REJECTED
    except (SessionError, GenerateError) as error:
        raise CommandError(str(error)) from None
    return OK if written else REJECTED


def _print(draft: Outcome, completion: Completion, *, raw: bool) -> bool:
    text = completion.text if raw else draft.candidate.source if draft.candidate else ""
    if text:
        note = f", {completion.note}" if completion.note else ""
        print(f"# ---- {draft.id}{note}\n{text}", flush=True)
    else:
        say(f"{draft.id}: {draft.why}")
    return bool(text)


def _verdict(session: Session, target: Target, candidate: CandidateId) -> bool:
    """Judges one candidate and reports the verdict; returns whether it was accepted."""
    outcome = session.outcome(target, candidate)
    verdict = outcome.verdict
    if verdict is None:
        say(f"{candidate}: {outcome.reason}")
        return False
    say(f"{candidate}: {verdict.in_words()}")
    return verdict.accepted
