"""Adds the settings that a command line can give to a parser."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any

from pytest_kernelllm.config.settings import Option, Settings

FREQUENT = (
    "generator",
    "samples",
    "endpoint",
    "device",
    "timing",
    "workers",
    "require_kernels",
    "require_timing",
    "compare",
)
"""The settings that have an option of pytest's of their own: what people change from run to run."""


def options(*groups: str) -> dict[str, Option]:
    """The options of these groups, or of all of them, by the names of their settings."""
    found = {field.name: field.metadata["option"] for field in fields(Settings) if field.metadata}
    return {name: option for name, option in found.items() if not groups or option.group in groups}


def add_options(add: Callable[..., Any], *groups: str, prefix: str = "", only: Collection[str] = ()) -> None:
    """Add settings as arguments. Those left out on the command line are None, and come from elsewhere.

    Args:
        add: ``add_argument`` of argparse, or ``addoption`` of pytest.
        groups: of options; without any, all of them.
        only: names of settings; empty takes all.
    """
    for name, option in options(*groups).items():
        if only and name not in only:
            continue
        flag = f"--{prefix}{option.flag or name}".replace("_", "-")
        rest = {
            "dest": f"{prefix}{name}".replace("-", "_"),
            "default": None,
            "help": option.help.replace("%", "%%"),  # argparse formats it
        }
        if option.sets is not None:
            add(flag, action="store_const", const=option.sets, **rest)
        elif option.bare:
            add(flag, metavar=option.metavar, nargs="?", const=option.bare, **rest)
        else:
            add(flag, metavar=option.metavar or choices(name), **rest)


def run_name(text: str) -> str:
    """Returns a name for a recorded run, as it is.

    Raises:
        ArgumentTypeError: it cannot be one.
    """
    if not re.fullmatch(r"[\w.-]{1,60}", text) or text in ("latest", "off"):
        raise ArgumentTypeError(f"{text!r} names no run; take up to 60 letters, digits, '.', '_' and '-'")
    return text


def choices(name: str) -> str:
    """``{auto,cpu,cuda}``: what a setting takes, where it takes one of a few words."""
    # The annotation as it is written: evaluating it costs every pytest session milliseconds.
    annotation: str = Settings.__annotations__[name]
    return "{" + ",".join(re.findall(r"'(\w+)'", annotation)) + "}"
