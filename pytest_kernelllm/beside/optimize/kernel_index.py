"""Indexes the store's kernels by class: which are verified for a class's current source in this environment."""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from kernelllm_judge.core.records import Environment, KernelRecord
from kernelllm_runtime.source.marks import Mark, find_marks, kernelbench_mark
from kernelllm_runtime.source.resolve import Origin, ProjectSources
from pytest_kernelllm.beside.optimize.report import UNKNOWN
from pytest_kernelllm.core.applies import applies, difference
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.store import Store


class NoKernel(Exception):
    """Raised where a module has no kernel; the text says why in a few words."""


@dataclass(frozen=True)
class _Marked:
    """A marked target that the store has verdicts for."""

    mark: Mark
    origins: tuple[Origin, ...]
    """Where the marked class may be defined."""
    source_hash: str
    records: tuple[KernelRecord, ...]

    def names(self, cls: type) -> bool:
        """Returns whether ``cls`` is the marked class."""
        return any(_in_project(o, self.mark, cls) if o.module else _outside(o, cls) for o in self.origins)


class KernelIndex:
    """The verified kernels of a store by class, for one environment. It imports no class and runs no kernel."""

    def __init__(self, store: Store, environment: Environment | None) -> None:
        """``environment`` is where kernels would run; None if they cannot run."""
        self._store, self._environment = store, environment
        self._known: dict[type, Sequence[KernelRecord] | NoKernel] = {}
        self._problems: list[str] = []

    @property
    def problems(self) -> list[str]:
        """A sentence for each entry of the store that cannot be used."""
        return [*self._store.problems, *self._problems]

    def records(self, cls: type[nn.Module]) -> Sequence[KernelRecord]:
        """Returns the kernels verified for the current source of a class in this environment, the fastest first.

        Raises:
            NoKernel: there is none; the text is the reason.
        """
        if cls not in self._known:
            try:
                self._known[cls] = self._find(cls)
            except NoKernel as none:
                self._known[cls] = none
        found = self._known[cls]
        if isinstance(found, NoKernel):
            raise found
        return found

    def _find(self, cls: type[nn.Module]) -> Sequence[KernelRecord]:
        marked = [each for each in self._marked if each.names(cls)] or self._copies(cls)
        if not marked:
            raise NoKernel(UNKNOWN)
        if self._environment is None:
            raise NoKernel("there is no GPU here to run its kernel")
        if _replaced(cls):
            raise NoKernel("the forward of its class was replaced")
        current = [r for each in marked for r in each.records if r.source_hash == each.source_hash]
        if not current:
            raise NoKernel("its source changed since its kernel was verified")
        here = [r for r in current if applies(r.verdict, self._environment)]
        accepted = [r for r in here if r.verdict.accepted]
        if accepted:
            return sorted(accepted, key=_by_speed)
        if any(r.verdict.correct for r in here):
            raise NoKernel("its verified kernels are not faster here")
        if elsewhere := [r.verdict for r in current if r.verdict.accepted]:
            raise NoKernel(f"its kernel was verified {difference(elsewhere[0], self._environment)}")
        raise NoKernel("no candidate for it was accepted")

    def _copies(self, cls: type) -> list[_Marked]:
        """The marked target that a class is, where the store knows its source as that of another, equal one."""
        root = self._store.path.absolute().parent
        file = Path(getattr(sys.modules.get(cls.__module__), "__file__", None) or "").absolute()
        if not file.is_relative_to(root):
            return []
        found = [each for each in _marks_of(file, ProjectSources(root)).values() if each.names(cls)]
        return [
            replace(each, records=tuple(r for r in self._store.verdicts if r.source_hash == each.source_hash))
            for each in found
        ]

    @cached_property
    def _marked(self) -> list[_Marked]:
        """The targets that the store has verdicts for and that are still marked."""
        by_file: defaultdict[str, defaultdict[str, list[KernelRecord]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for record in self._store.verdicts:
            path, _, name = record.target.partition("::")
            by_file[path][name].append(record)
        projects: dict[Path, ProjectSources] = {}
        found: list[_Marked] = []
        for path, records in by_file.items():
            # Target paths are relative to the project's root, and the store may lie in a subfolder of it.
            root = next((p for p in self._store.path.absolute().parents if (p / path).is_file()), None)
            if root is None:
                self._problem(path, "does not exist any more", records)
                continue
            marked = _marks_of(root / path, projects.setdefault(root, ProjectSources(root)))
            for name, its_records in records.items():
                if name in marked:
                    found.append(replace(marked[name], records=tuple(its_records)))
                else:
                    self._problem(path, f"marks no {name} any more", records)
        return found

    def _problem(self, path: str, what: str, records: Any) -> None:
        self._problems.append(
            f"{path} {what}, so the store's kernels for {', '.join(records)} cannot be used."
        )


def _marks_of(file: Path, project: ProjectSources) -> dict[str, _Marked]:
    """The targets that a file marks, by name, without their records; empty if the file is not Python."""
    hashes = {
        t.name: t.source_hash
        for t in scan_file(file, project.root, kernelbench=True, project=project).targets
    }
    if not hashes:
        return {}
    module = project.parse(file)
    marks = [*find_marks(project, module).marks]
    if (bench := kernelbench_mark(module)) is not None:
        marks.append(bench)
    return {
        mark.name: _Marked(mark, tuple(project.resolve(module, mark.expression)), hashes[mark.name], ())
        for mark in marks
        if mark.name in hashes
    }


def _in_project(origin: Origin, mark: Mark, cls: type) -> bool:
    """Whether ``cls`` was defined in the origin's file, with its name or nested in a class of that name."""
    assert origin.module is not None
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if not file or Path(file).resolve() != origin.module.path.resolve():
        return False
    tails = (mark.expression[start:] for start in range(1, len(mark.expression) + 1))
    return any(cls.__qualname__ == ".".join((origin.name, *tail)) for tail in tails)


def _outside(origin: Origin, cls: type) -> bool:
    """Whether a name in an installed package, such as ``transformers.LlamaModel``, refers to ``cls``."""
    module, _, name = origin.name.rpartition(".")
    # Other names are not looked up, because lazy packages would import modules.
    if name != cls.__name__ or module.partition(".")[0] != cls.__module__.partition(".")[0]:
        return False
    return getattr(sys.modules.get(module), name, None) is cls


def _replaced(cls: type[nn.Module]) -> bool:
    """Whether ``forward`` was replaced by another function; decorators with ``__wrapped__`` are allowed."""
    owner = next(base for base in cls.__mro__ if "forward" in vars(base))
    forward: Callable[..., Any] = inspect.unwrap(vars(owner)["forward"])
    code = getattr(forward, "__code__", None)
    file = getattr(sys.modules.get(owner.__module__), "__file__", None)
    if code is None or file is None:
        return True
    return (
        code.co_qualname != f"{owner.__qualname__}.forward"
        or Path(code.co_filename).resolve() != Path(file).resolve()
    )


def _by_speed(record: KernelRecord) -> tuple[float, str]:
    speedup = record.verdict.speedup
    return (-(speedup.value if speedup else 0.0), record.verdict.kernel_hash)
