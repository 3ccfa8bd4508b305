"""Checks where a long run will write its results, while the command line is read."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path


def output_file(text: str) -> str:
    """Returns the name of a file that can be written, or ``-``, as it is: the ``type`` of an argument.

    Raises:
        ArgumentTypeError: it is a folder, or lies in none that can be written; one clause.
    """
    if text == "-":
        return text
    path = Path(text).absolute()
    if path.is_dir():
        raise ArgumentTypeError(f"{text} is a folder; name a file")
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())  # missing folders are made
    if not os.access(nearest, os.W_OK) or not (nearest.is_dir() or nearest == path):
        raise ArgumentTypeError(f"{text} cannot be written: {nearest} is not writable, or no folder")
    return text
