"""Imports a user's file under the module name that it has in the user's project."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from kernelllm_judge.core.syntax import Chain
from kernelllm_judge.core.targets import Target
from kernelllm_judge.target.errors import TargetError, in_one_line
from kernelllm_runtime.marker import MARKS_ATTRIBUTE, OPTIONS_ATTRIBUTE, Options
from kernelllm_runtime.source.marks import find_marks, kernelbench_mark
from kernelllm_runtime.source.resolve import ProjectSources, label, package_root


def import_file(path: Path, root: Path) -> ModuleType:
    """Imports a Python file, or returns the module if it is imported already.

    A file in a package is imported under its dotted name, with the package's parent folder first in
    ``sys.path``; any other file is imported under its own name, with its folder first. The project root and
    its ``src`` come last.

    Raises:
        TargetError: importing it fails, or another file has taken its name.
    """
    if loaded := _loaded(path):
        return loaded
    top = package_root(path)
    for folder in (root / "src", root):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.append(str(folder))
    if str(top) not in sys.path:
        sys.path.insert(0, str(top))
    parts = path.relative_to(top).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    before = set(sys.modules)
    try:
        if len(path.relative_to(top).parts) > 1 and all(part.isidentifier() for part in parts):
            module = importlib.import_module(".".join(parts))
        else:
            module = _import_alone(path, root)
    except (Exception, SystemExit) as error:
        _forget(parts[0], set(sys.modules) - before)
        raise TargetError(f"{label(path, root)} cannot be imported: {in_one_line(error)}.") from error
    if not _same_file(module, path):
        raise TargetError(
            f"{label(path, root)} cannot be imported as {module.__name__}: that name is taken by "
            f"{getattr(module, '__file__', None)}; rename one of them."
        )
    return module


def _import_alone(path: Path, root: Path) -> ModuleType:
    names = _names_alone(path, root)
    name = next((name for name in names if name not in sys.modules), names[-1])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # it ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses and pickle look themselves up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _names_alone(path: Path, root: Path) -> list[str]:
    """Returns names for a file outside packages, of which the first that is free is taken.

    All but the last are the same in every checkout: what is stored of a kernel may name its target's classes.
    """
    short = path.stem.isidentifier() and path.stem not in sys.stdlib_module_names
    root = root.resolve()
    within = path.relative_to(root) if path.is_relative_to(root) else path
    readable = "_".join(within.with_suffix("").parts[-2:])
    # The last is free unless the file itself changed: several checkouts may be loaded at once.
    unique = (hashlib.sha256(str(name).encode()).hexdigest()[:8] for name in (within, path))
    others = [readable, *(f"{readable}_{digest}" for digest in unique)]
    named = [f"kernelllm_{name}".replace(".", "_") for name in others]
    return [path.stem, *named] if short else named


def _forget(package: str, names: Iterable[str]) -> None:
    """Removes what a package had imported of itself before it failed, so that it fails again when it is tried again."""
    for name in names:
        if name.partition(".")[0] == package:
            sys.modules.pop(name, None)


def marked_class(target: Target, file: Path, root: Path) -> tuple[type[nn.Module], Options]:
    """Imports a target's file and returns its class, with the marker's arguments.

    Raises:
        TargetError: importing it fails, or it has no such class.
    """
    module = import_file(file, root)
    where = f"{target.path}: {target.name}"
    cls: Any = module
    for name in _expression(target, file, root):
        cls = getattr(cls, name, None)
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        raise TargetError(
            f"{where} is not an nn.Module class; mark a class that derives from torch.nn.Module."
        )
    if target.kind == "kernelbench":
        makers = vars(module)  # whose sizes are the problem's own
        return cls, Options(inputs={"default": makers["get_inputs"]}, init=makers["get_init_inputs"])
    marks = vars(cls).get(MARKS_ATTRIBUTE, {})
    options = marks.get(module.__name__, vars(cls).get(OPTIONS_ATTRIBUTE))
    if len(marks) > 1 and module.__name__ not in marks:
        raise TargetError(f"{where} is marked by other modules, not by {target.path} itself; mark it there.")
    if not isinstance(options, Options):
        raise TargetError(f"{where} is not marked once {target.path} is imported; mark it unconditionally.")
    return cls, options


def _expression(target: Target, file: Path, root: Path) -> Chain:
    project = ProjectSources(root)
    module = project.parse(file)
    if target.kind == "kernelbench" and (bench := kernelbench_mark(module)):
        return bench.expression
    for mark in find_marks(project, module).marks:
        if mark.name == target.name:
            return mark.expression
    raise TargetError(f"{target.path} no longer marks {target.name}; run the scan again.")


def _loaded(path: Path) -> ModuleType | None:
    for name, module in list(sys.modules.items()):
        if name != "__main__" and isinstance(module, ModuleType) and _same_file(module, path):
            return module
    return None


def _same_file(module: ModuleType, path: Path) -> bool:
    # Read from the module's dictionary: a lazy module would import something to answer.
    file = vars(module).get("__file__")
    if not isinstance(file, str) or not file.endswith(path.name):
        return False
    return Path(file).resolve() == path.resolve()
