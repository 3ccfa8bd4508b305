"""``kernelllm apply``: suggested patches, applied to the working tree."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_kernelllm.commands.common import OK, CommandError, settings_of
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.patch import COMBINED, PatchError, apply

HELP = "Apply suggested patches to the working tree."


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "names", nargs="*", help="patches by name, as the run's table shows them (default: all)"
    )


def run(options: argparse.Namespace) -> int:
    """Exit code: 0, or a ``CommandError``."""
    folder = Store(Path.cwd(), settings_of(options).store).path / "patches"
    # The combined patch, because patches for one file apply each alone, but not one after the other.
    names = options.names or (
        [COMBINED] if (folder / f"{COMBINED}.patch").is_file() else [p.stem for p in folder.glob("*.patch")]
    )
    if not names:
        raise CommandError(f"There are no patches in {folder}; run `pytest --kernelllm` first.")
    for name in names:
        path = Path(name) if Path(name).is_file() else folder / f"{name.removesuffix('.patch')}.patch"
        if not path.is_file():
            raise CommandError(f"There is no patch {name} in {folder}.")
        try:
            apply(Path.cwd(), path)
        except PatchError as error:
            raise CommandError(str(error)) from None
        print(f"applied {path.stem}")
    return OK
