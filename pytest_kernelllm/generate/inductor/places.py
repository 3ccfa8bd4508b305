"""Names the line of the user's file at which a module cannot be traced."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from pytest_kernelllm.generate.inductor.trace import TraceError


@contextlib.contextmanager
def located(module: nn.Module) -> Iterator[None]:
    """Adds the line to a ``TraceError`` about a module: `` at layers.py:14, `if x.sum() > 0:` ``.

    It is the innermost line of the module's own classes, parts included, that the error or its operation comes from.
    """
    try:
        yield
    except TraceError as error:
        files = _files(module)
        found = [each for each in _lines(error) if each[0] in files]
        if not found:
            raise
        raise TraceError(f"{error} at {_place(*found[-1])}") from error


def _lines(error: TraceError) -> list[tuple[str, int]]:
    """Returns files and lines, outermost first."""
    if error.node is not None:
        return _lines_of(error.node)
    if error.__cause__ is None:
        return []
    frames = traceback.extract_tb(error.__cause__.__traceback__)
    return [(frame.filename, frame.lineno or 0) for frame in frames]


def _lines_of(node: torch.fx.Node) -> list[tuple[str, int]]:
    """Returns the lines that made an operation; those of the first one that reads it, if it is an input of the graph."""
    for each in (node, *node.users):
        if text := each.meta.get("stack_trace"):
            return [(file, int(line)) for file, line in re.findall(r'File "(.+?)", line (\d+)', text)]
    return []


def _files(module: nn.Module) -> set[str]:
    """Returns the files of a module's classes and of its parts' classes, PyTorch's left out."""
    classes = {base for part in module.modules() for base in type(part).__mro__[:-1]}
    found = set()
    for cls in classes:
        if cls.__module__.partition(".")[0] != "torch":
            with contextlib.suppress(TypeError, OSError):  # of a class that no file defines
                found.add(inspect.getfile(cls))
    return found


def _place(file: str, line: int) -> str:
    path = Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else Path(path.name)
    code = linecache.getline(file, line).strip()
    return f"{shown.as_posix()}:{line}, `{code if len(code) <= 60 else code[:59] + '…'}`"
