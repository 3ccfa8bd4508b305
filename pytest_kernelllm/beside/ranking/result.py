"""The result of a ranking: what each part of a model takes, what a kernel could save there, and the table of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.markup import escape

from kernelllm_judge.core.records import Ratio
from pytest_kernelllm.beside.ranking.marker_file import markers_file
from pytest_kernelllm.beside.ranking.markers import Marker
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.report.fitted import NAME, SENTENCE, Column, fitted, rendered
from pytest_kernelllm.suggest.style import Style

WORTH_SHOWING = 0.01
"""Share of a step's device time that a row must be able to save to be in the table and among the markers."""


@dataclass(frozen=True)
class RankedModule:
    """Modules of one class that do the same work: equal settings, shapes of weights, and arguments. Times are ms a step."""

    cls: str
    """Dotted name of the class."""
    paths: tuple[str, ...]
    """Where they are in the model, with ``*`` for numbers."""
    calls: int
    """In one step."""
    operations: int
    """Operations that move memory, in all calls."""
    ms: float
    """The device's time in all calls, with the modules inside."""
    own_ms: float
    """The time without the modules inside."""
    share: float
    """``ms`` as a share of the whole step."""
    headroom_ms: float
    """What kernels could save at most, here and in the modules inside."""
    own_headroom_ms: float
    """What a kernel for this module could save beyond kernels for the modules inside it. All rows add up to the whole."""
    roofline: float
    """Share of its time that its operations would take at the roofline, if they were fused."""
    bytes: int
    """Bytes moved by all operations, each alone."""
    fused_bytes: int
    """Bytes that would move if the operations were fused."""
    flops: int
    """FLOPs of matrix multiplications, convolutions and attention."""
    kernel: str = ""
    """The verified kernel that covers it: the first 12 digits of its hash, or its dotted name if it is adopted."""
    gain: Ratio | None = None
    """That kernel's measured speedup over eager at its marker's sizes."""
    reason: str = ""
    """Why the store's kernels for its class do not count, why it cannot be marked, or what its marker leaves out."""
    marker: bool = False
    """Whether a marker can be written for it."""


@dataclass(frozen=True)
class Ranking:
    """What the parts of a model take, the most promising first; ``str()`` is a table. Times are ms a step."""

    modules: tuple[RankedModule, ...]
    measured: bool
    """Whether times are the GPU's; else they are predicted, each operation at the roofline of ``gpu``."""
    gpu: str
    ms: float
    """The device's time of one step."""
    headroom_ms: float
    """What kernels could save in it at most, with everything fused between heavy operations."""
    step_ms: float | None = None
    """From the call to the end of the GPU's work; what is more than ``ms`` is the time of Python and of launches."""
    operations: int = 0
    notes: tuple[str, ...] = ()
    model: str = ""
    """The model's class."""
    _markers: tuple[Marker, ...] = field(default=(), repr=False, compare=False)
    """One for each row."""

    @property
    def worth(self) -> tuple[RankedModule, ...]:
        """The rows that can save at least 1 % of the step."""
        return tuple(row for row in self.modules if row.own_headroom_ms >= WORTH_SHOWING * self.ms > 0)

    def markers(self) -> str:
        """Returns a Python file that marks every class in ``worth`` that can be marked, in all ways that have no kernel yet."""
        pairs = zip(self.modules, self._markers, strict=True)
        classes = {row.cls for row in self.worth}
        rows = [(row, marker) for row, marker in pairs if row.own_headroom_ms > 0 and not row.kernel]
        wanted = [marker for row, marker in rows if row.cls in classes]
        return markers_file(self.model, wanted)

    def write_markers(self, path: Path | str, *, overwrite: bool = False) -> None:
        """Writes ``markers()`` to a file, formatted as its project is.

        Raises:
            FileExistsError: the file exists, and ``overwrite`` is not set.
        """
        file = Path(path).absolute()
        if file.exists() and not overwrite:
            raise FileExistsError(f"{path} exists.")
        file.write_bytes(Style(file.parent).edited(file.name, b"", self.markers().encode()))

    def to_json(self) -> dict[str, Any]:
        """Returns everything but the markers as plain values."""
        every = asdict(replace(self, _markers=()))
        return {name: value for name, value in every.items() if not name.startswith("_")}

    def __str__(self) -> str:
        """Formats the table."""
        return render(self, width=120, color=False)


def render(ranking: Ranking, width: int, color: bool) -> str:
    """Returns the rows that are worth it as a table, with what the figures mean."""
    columns = [
        Column("module", shorten=NAME),
        Column("calls", drop=3),
        Column("ms a step", drop=1),
        Column("share"),
        Column("roofline", drop=5),
        Column("headroom"),
        Column("beyond parts", drop=4),
        Column("kernel", drop=2, shorten=SENTENCE),
    ]
    tables = [fitted(columns, [_cells(row, ranking) for row in ranking.worth], width)]
    return rendered(width, color, *(tables if ranking.worth else []), *_sentences(ranking))


def _digits(ms: float) -> str:
    """Returns three digits of a time."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def _cells(row: RankedModule, ranking: Ranking) -> tuple[str, ...]:
    paths = ", ".join(row.paths[:2]) + (", …" if len(row.paths) > 2 else "")
    return (
        f"[bold]{escape(_name(row))}[/] [dim]{escape(paths)}[/]",
        f"{row.calls:,}",
        _digits(row.ms),
        f"{row.share:.0%}",
        f"{row.roofline:.0%}",
        _digits(row.headroom_ms),
        f"{_digits(row.own_headroom_ms)} ({row.own_headroom_ms / ranking.ms:.0%})",
        f"[green]{escape(_covered(row))}[/]" if row.kernel else "see below" if row.reason else "–",
    )


def _name(row: RankedModule) -> str:
    return row.cls.rpartition(".")[2]


def _covered(row: RankedModule) -> str:
    return f"{row.kernel} {row.gain.value:.2f}x" if row.gain else row.kernel


def _sentences(ranking: Ranking) -> list[str]:
    if ranking.measured:
        whole = (
            f"{ranking.model} on {ranking.gpu}: operations take {_digits(ranking.ms)} ms of the GPU a step"
        )
        whole += f", a step takes {_digits(ranking.step_ms)} ms" if ranking.step_ms is not None else ""
    else:
        whole = f"{ranking.model}: a step is predicted to take {_digits(ranking.ms)} ms on {ranking.gpu}, each operation at the roofline"
    lines = [f"{whole}; {counted(ranking.operations, 'operation')}."]
    share = ranking.headroom_ms / ranking.ms if ranking.ms else 0.0
    lines.append(f"Kernels could save {_digits(ranking.headroom_ms)} ms at most ({share:.0%}).")
    if ranking.worth:
        lines[-1] += (
            " A row's headroom includes the modules inside it; what is beyond these parts adds up over the rows."
        )
    rest = len(ranking.modules) - len(ranking.worth)
    left = ranking.headroom_ms - sum(row.own_headroom_ms for row in ranking.worth)
    if rest:
        lines.append(
            f"{counted(rest, 'row')} with less than 1 % each: {_digits(max(left, 0.0))} ms together."
        )
    if ranking.step_ms is not None and ranking.step_ms > 1.25 * ranking.ms:
        lines.append(
            f"The GPU waits {_digits(ranking.step_ms - ranking.ms)} ms of a step for Python and launches; CUDA graphs save that."
        )
    lines += dict.fromkeys(f"{_name(row)}: {row.reason}." for row in ranking.worth if row.reason)
    return [*lines, *ranking.notes]
