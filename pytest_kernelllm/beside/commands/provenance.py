"""``kernelllm provenance``: checks an export offline, and says what was judged."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernelllm_judge.core.errors import SessionError
from pytest_kernelllm.commands.common import OK, REJECTED, CommandError
from pytest_kernelllm.core.words import say

HELP = (
    "Check that an export for Hugging Face's kernels library is as it was written, and by whom, and say what was "
    "judged. Exit code: 0 it is, 1 it is not, 2 there is none."
)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the export")
    parser.add_argument(
        "--key", metavar="PUBLIC.pem", help="Ed25519 public key that must have signed it (extra: sign)"
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 1 if the export is not what was written."""
    from pytest_kernelllm.beside.export.check import checked

    if not Path(options.folder).is_dir():
        raise CommandError(f"There is no folder {options.folder}.")
    try:
        layers = checked(Path(options.folder), Path(options.key) if options.key else None)
    except SessionError as error:
        say(error)
        return REJECTED
    for name, layer in sorted(layers.items()):
        verdict = layer["verdict"]
        if verdict is None:
            print(f"{name}: adopted; the store had no verdict on it")
            continue
        where, shown = verdict["environment"], verdict["certificate"]
        on = where["gpu"] or f"Triton's interpreter, compiled for {where['arch']}"
        reach = "".join(f"; {what} {shown[what]}" for what in ("bounds", "races", "outputs")) if shown else ""
        print(
            f"{name}: {verdict['verdict']} on {on}, torch {where['torch']}, triton {where['triton']}{reach}"
        )
    say("signed by the key" if options.key else "not checked by whom: no --key was named")
    return OK
