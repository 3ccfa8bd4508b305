"""Finds the files that a target needs to be imported on another machine."""

from __future__ import annotations

import os
from pathlib import Path

from kernelllm_judge.core.targets import Target
from kernelllm_runtime.source.changes import changes_of
from kernelllm_runtime.source.resolve import ProjectSources


def source_files(root: Path, target: Target) -> dict[Path, bytes]:
    """Returns a target's file, the project's files that it imports, and those that they import, by absolute path.

    Imports anywhere in a file count, also those in functions. Each file of a package brings the package's
    ``__init__.py``. Installed packages and data files are not included.

    Raises:
        OSError: a file cannot be read.
        SyntaxError, ValueError: the target's file is not Python.
    """
    project = ProjectSources(root.absolute())
    module = project.parse(Path(os.path.normpath(project.root / target.path)))
    kernel = project.find(module, 0, target.kernel.split(".")) if target.kernel else None
    starts = filter(None, (module, kernel))
    files = {each.path for start in starts for each in changes_of(project).loaded(start)}
    return {file: file.read_bytes() for file in sorted(files)}
