"""The report of ``optimize_model``, module by module, and the way to undo it."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rich.markup import escape
from torch import nn

from kernelllm_judge.core.records import Ratio
from kernelllm_runtime.adopted import DISPATCHER, KernelLLMWarning
from kernelllm_runtime.instance import Swap
from kernelllm_runtime.placing import Choice, digest_of, save, surroundings
from pytest_kernelllm.report.fitted import NAME, SENTENCE, Column, fitted, rendered, terminal_width

UNKNOWN = "no kernel in the store"
"""The reason for modules whose class is not in the store."""


@dataclass(frozen=True)
class ModuleReport:
    """One module of the model. Either ``kernel`` or ``reason`` is empty."""

    path: str
    """Dotted name in the model; empty for the model itself."""
    cls: str
    """Qualified name of its class."""
    kernel: str = ""
    """First 12 digits of the kernel's hash, by which ``kernelllm store show`` finds it."""
    reason: str = ""
    """Why it was not replaced."""
    gain: Ratio | None = None
    """Speedup of the example with the middle half of the rounds, else over eager at the marker's sizes, by the verdict;
    None if not measured."""
    whole: bool = False
    """Whether it is the speedup of the example."""
    gpu: str = ""
    """The GPU that it was measured on."""


@dataclass(frozen=True)
class OptimizeReport:
    """The modules that were replaced, and why others were not; ``str()`` is a table. A ``with`` block restores the model."""

    modules: tuple[ModuleReport, ...]
    """Every module of the model, in the order of ``named_modules``."""
    store: Path
    """The store's folder."""
    problems: tuple[str, ...] = ()
    """A sentence for each entry of the store that cannot be used."""
    _swaps: tuple[Swap, ...] = field(default=(), repr=False, compare=False)

    @property
    def replaced(self) -> tuple[ModuleReport, ...]:
        """The modules that run a kernel inside its domain."""
        return tuple(module for module in self.modules if module.kernel)

    def restore(self) -> None:
        """Gives every replaced module its original class again; a second call does nothing.

        A module whose class something else has changed since is left alone with a warning.
        """
        for swap in self._swaps:
            if not swap.undo():
                warnings.warn(
                    f"{swap.path or 'the model'} became a {type(swap.module).__qualname__} after optimize_model; "
                    "undo that, then call restore() again.",
                    KernelLLMWarning,
                    stacklevel=2,
                )

    def save(self, file: Path | str) -> None:
        """Writes the kernels that were placed to a file, from which ``kernelllm_runtime.place_kernels`` places them.

        It holds their source, the digest of each class, and the versions and the GPU that they are for.
        """
        chosen = ((swap.before, getattr(swap.after.forward, DISPATCHER)) for swap in self._swaps)
        choices = [
            Choice(
                f"{cls.__module__}.{cls.__qualname__}",
                digest_of(cls),
                dispatcher.kernel.dotted,
                dispatcher.kernel.source,
            )
            for cls, dispatcher in chosen
        ]
        save(Path(file), choices, surroundings(nn.ModuleList(swap.module for swap in self._swaps)))

    def __enter__(self) -> Self:
        """Returns the report."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Restores the model."""
        self.restore()

    def __str__(self) -> str:
        """Formats a table for the terminal; modules that differ only in a number of their path share a line."""
        return self.shown(terminal_width())

    def shown(self, width: int) -> str:
        """Returns the table at most so wide, and the lines below it."""
        known = [module for module in self.modules if module.reason != UNKNOWN]
        unknown = Counter(module.cls for module in self.modules if module.reason == UNKNOWN)
        counts = Counter(map(_line, sorted(known, key=lambda module: bool(module.reason))))
        rows = [list(map(escape, (_times(line[0], number), *line[1:]))) for line, number in counts.items()]
        columns = [Column("module", shorten=NAME), Column("class", drop=1, shorten=NAME)]
        columns += [Column("kernel", shorten=SENTENCE), Column("expected gain", shorten=SENTENCE)]
        lines = []
        if unknown:
            lines.append(f"{UNKNOWN}: " + ", ".join(_times(name, unknown[name]) for name in sorted(unknown)))
        lines.append(f"{len(self.replaced)} of {len(self.modules)} modules run kernels from {self.store}")
        return rendered(width, False, fitted(columns, rows, width), *lines, *self.problems)


def _times(name: str, number: int) -> str:
    return f"{name} ×{number}" if number > 1 else name


def path_pattern(path: str) -> str:
    """Returns a module's path with ``*`` for each number, so that the layers of a model share one."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path) or "(the model)"


def _line(module: ModuleReport) -> tuple[str, str, str, str]:
    path = path_pattern(module.path)
    if module.kernel:
        return path, module.cls, module.kernel, _gain(module)
    return path, module.cls, f"– {module.reason}", ""


def _gain(module: ModuleReport) -> str:
    if module.gain is None:
        return "not measured"
    gain = module.gain
    where = f" on {module.gpu}" if module.gpu else ""
    what = " of the example" if module.whole else ""
    return f"{gain.value:.2f}x [{gain.low:.2f}, {gain.high:.2f}]{what}{where}"
