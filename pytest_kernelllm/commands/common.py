"""What subcommands share: exit codes, options that are settings, and finding the target that a command line names."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_kernelllm.config.options import add_options
from pytest_kernelllm.config.settings import GENERATORS, JUDGING, LANGUAGE_MODEL, Settings, load_settings
from pytest_kernelllm.core.records import Target

OK, REJECTED, UNJUDGED = 0, 1, 2
"""Exit codes: all well; rejected or nothing found; could not be judged, or wrong use."""


class CommandError(Exception):
    """Something a person has to put right; one sentence."""


def add_generator_options(parser: argparse.ArgumentParser) -> None:
    """Who writes, and how."""
    add_options(parser.add_argument_group("generators").add_argument, GENERATORS)
    add_model_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Which language model, where, and how it is sampled."""
    add_options(parser.add_argument_group("language model").add_argument, LANGUAGE_MODEL)


def add_judge_options(parser: argparse.ArgumentParser) -> None:
    """Where and how candidates are judged."""
    add_options(parser.add_argument_group("judging").add_argument, JUDGING)


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings of the project here, with what the command line says in their place.

    Raises:
        ConfigError: a setting has a wrong name or value.
    """
    names = {field.name for field in fields(Settings)} - {"paths", "store"}
    given: dict[str, Any] = {name: value for name, value in vars(options).items() if name in names}
    return load_settings(Path.cwd(), given)


def find_target(reference: str) -> Target:
    """The target that ``file.py::Class`` names, or the only one of ``file.py``.

    Raises:
        CommandError: there is no such file, or no such target in it.
    """
    from pytest_kernelllm.discover.scan import scan_file

    file, _, name = reference.partition("::")
    if not Path(file).is_file():
        raise CommandError(f"There is no file {file}; a target is named file.py::Class.")
    found = scan_file(Path(file), Path.cwd(), kernelbench=name in ("", "Model"))
    match = [t for t in found.targets if t.name == name or (not name and len(found.targets) == 1)]
    if not match:
        known = ", ".join(t.name for t in found.targets) or "none"
        raise CommandError(f"{file} marks no class {name}; it marks {known}.")
    return match[0]
