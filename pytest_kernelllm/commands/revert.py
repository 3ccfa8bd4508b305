"""``kernelllm revert``: undoes adoptions, with or without git."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kernelllm_judge.core.records import Target
from pytest_kernelllm.commands.common import OK, CommandError
from pytest_kernelllm.commands.project import project_here
from pytest_kernelllm.commands.targets import NAMES, named_targets
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.suggest.edit import EditError
from pytest_kernelllm.suggest.files import PatchError
from pytest_kernelllm.suggest.revert import reversal, undo
from pytest_kernelllm.suggest.style import Style

HELP = "Remove adopted kernels again."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("names", nargs="*", metavar="TARGET", help=f"adopted targets: {NAMES}")
    parser.add_argument("--all", action="store_true", help="every adopted target of the project")
    parser.add_argument("--force", action="store_true", help="also delete kernels that were edited by hand")


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns exit code 0.

    Raises:
        CommandError: an adoption cannot be undone.
    """
    root = project_here().root
    named = [Path(name.partition("::")[0]).absolute() for name in options.names]
    targets = scan([root, *(path for path in named if path.is_file())], root).targets
    adopted = [target for target in targets if target.kernel is not None]
    chosen = _chosen(root, options, adopted)
    try:
        plan = reversal(root, chosen, targets, force=options.force, style=Style(root))
        undo(root, plan)
    except (EditError, PatchError) as error:
        raise CommandError(str(error)) from None
    for target in chosen:
        print(f"reverted {target.id}")
    for sentence in plan.kept:
        print(sentence)
    return OK


def _chosen(root: Path, options: argparse.Namespace, adopted: Sequence[Target]) -> list[Target]:
    if options.all and options.names:
        raise CommandError("Name targets or use --all, not both.")
    if not adopted:
        raise CommandError("No kernel is adopted here.")
    if options.all:
        return list(adopted)
    known = ", ".join(target.id for target in adopted)
    if not options.names:
        raise CommandError(f"Adopted are {known}; name what to revert, or use --all.")
    chosen = []
    for name in options.names:
        found = named_targets(name, adopted, root, "adopted target")
        chosen += [target for target in found if target not in chosen]
    return chosen
