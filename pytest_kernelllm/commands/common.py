"""Shared by the subcommands: exit codes, and options that are settings."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_kernelllm.config.options import add_options
from pytest_kernelllm.config.settings import GENERATORS, JUDGING, LANGUAGE_MODEL, Settings, load_settings

OK, REJECTED, UNJUDGED = 0, 1, 2
"""Exit codes: success; rejected or nothing found; could not be judged, or used wrongly."""


class CommandError(Exception):
    """An error that the user can fix; one sentence."""


def add_generator_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose and configure generators."""
    add_options(parser.add_argument_group("generators").add_argument, GENERATORS)
    add_model_options(parser)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose a language model and its sampling."""
    add_options(parser.add_argument_group("language model").add_argument, LANGUAGE_MODEL)


def add_judge_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for judging."""
    add_options(parser.add_argument_group("judging").add_argument, JUDGING)


def settings_of(options: argparse.Namespace) -> Settings:
    """Returns the settings of the project here, overridden by the command line.

    Raises:
        ConfigError: a setting has an unknown name or an invalid value.
    """
    names = {field.name for field in fields(Settings)} - {"paths", "store"}
    given: dict[str, Any] = {name: value for name, value in vars(options).items() if name in names}
    return load_settings(Path.cwd(), given)
