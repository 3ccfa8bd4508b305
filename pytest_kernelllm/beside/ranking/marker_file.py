"""Writes markers as a Python file."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.syntax import snake_case
from kernelllm_judge.core.targets import TensorSpec
from kernelllm_judge.target.attributes import dtype_name, is_scalar
from kernelllm_judge.target.build import original_forward
from kernelllm_judge.target.cases import Ranges, Sizes
from kernelllm_judge.target.varying import Axes, free_dims, leading_axes, runs_without_data
from kernelllm_judge.target.work import empty_tensors
from kernelllm_runtime.leaves import all_leaves
from pytest_kernelllm.beside.ranking.expressions import Imports, expression
from pytest_kernelllm.beside.ranking.markers import Marker, specs
from pytest_kernelllm.beside.ranking.rows import Group
from pytest_kernelllm.beside.ranking.trace import Shape


def markers_file(title: str, markers: Sequence[Marker]) -> str:
    """Returns a Python file with markers, one for each class and dtype.

    Args:
        markers: of the groups to mark, the most promising first. Others are listed with their reasons.
    """
    imports = Imports()
    writer = _Writer(imports)
    blocks: list[str] = []
    by_class: dict[tuple[type, str], list[Marker]] = {}
    for marker in markers:
        if marker.reason:
            blocks.append(_comment(f"Not marked, because {marker.reason}: {_where(marker.group)}"))
        else:
            by_class.setdefault((type(marker.group.module), _dtype(marker)), []).append(marker)
    marked = [writer.block(cls, dtype, same) for (cls, dtype), same in by_class.items()]
    head = f'''"""Modules of {title} where a kernel may be worth it, with the inputs of one run.

Sizes may vary up to those of the run. Change what should be different, then run pytest --kernelllm on this file.
"""'''
    lines = [
        "import torch",
        *filter(None, [str(imports)]),
        "",
        "from pytest_kernelllm import triton_candidate",
    ]
    if not marked:
        lines, head = [], f'"""Nothing in {title} can be marked that could save 1 % of a step."""'
    return "\n\n".join([head, "\n".join(lines), *marked, *blocks]).strip() + "\n"


@dataclass(frozen=True)
class _Row:
    """A marker, with the sizes of its call that may vary."""

    marker: Marker
    axes: Axes
    ranges: Ranges

    def runs(self, sizes: Sizes) -> bool:
        """Whether the module runs without data where named dimensions have other sizes."""
        given = self.axes.resized(specs(self.marker.inputs), sizes)
        return runs_without_data(self.marker.group.module, empty_tensors(given))


@dataclass(frozen=True)
class _Way:
    """Rows that are built in one way, and whose dimensions have the same ranges."""

    rows: tuple[_Row, ...]

    @property
    def ranges(self) -> Ranges:
        """The range of each dimension, from what all calls need."""
        found: Ranges = {}
        for row in self.rows:
            for name, (low, high) in row.ranges.items():
                least, most = found.get(name, (low, high))
                found[name] = (max(low, least), max(high, most))
        return found

    def holds(self, row: _Row) -> _Way | None:
        """Returns the same with another row; None if it is built in another way, or does not run at all sizes."""
        ours, theirs = self.rows[0].marker, row.marker
        path = ours.init is None and ours.group.module is not theirs.group.module
        together = _Way((*self.rows, row))
        highest = {name: high for name, (_, high) in together.ranges.items()}
        grown = (each for each in together.rows if any(each.ranges[n][1] < highest[n] for n in each.ranges))
        if (
            path
            or ours.init != theirs.init
            or not all(each.runs({name: highest[name] for name in each.ranges}) for each in grown)
        ):
            return None
        return together


def _ways(markers: Sequence[Marker]) -> list[_Way]:
    found: list[_Way] = []
    for marker in markers:
        row = _row(marker)
        for place, way in enumerate(found):
            if (together := way.holds(row)) is not None:
                found[place] = together
                break
        else:
            found.append(_Way((row,)))
    return found


def _row(marker: Marker) -> _Row:
    """Finds the axes that may vary, and in which ranges: as far as the module runs without data."""
    axes = leading_axes(specs(marker.inputs))
    ranges = free_dims(axes.sizes, _Row(marker, axes, {}).runs)
    return _Row(marker, axes.only(ranges), ranges)


class _Writer:
    """Writes the functions and the call of each marker."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports
        self._taken: set[str] = set()

    def block(self, cls: type[nn.Module], dtype: str, markers: Sequence[Marker]) -> str:
        """The marker of one class, with a case for each way to build it."""
        name = self._imports.name(cls)
        ways = _ways(markers)
        functions: list[str] = []
        options: list[str] = []
        if len(ways) == 1:
            made, options = self._way(ways[0], name)
            functions += made
        else:
            cases = []
            for way in ways:
                made, given = self._way(way, name)
                functions += made
                texts = (f"{key!r}: {value}" for key, value in (each.split("=", 1) for each in given))
                cases.append(f"{_named(way)!r}: {{{', '.join(texts)}}}")
            options = [f"cases={{{', '.join(cases)}}}"]
        options += [f"dtypes=({dtype!r},)"] if dtype else []
        comments = [_comment(_where(marker.group)) for marker in markers]
        left_out = dict.fromkeys(marker.left_out for marker in markers if marker.left_out)
        comments += [_comment(f"{each[0].upper()}{each[1:]}.") for each in left_out]
        call = "triton_candidate(\n    " + f"{name},\n    " + ",\n    ".join(options) + ",\n)"
        return "\n\n".join([*functions, "\n".join([*comments, call])])

    def _way(self, way: _Way, name: str) -> tuple[list[str], list[str]]:
        """The functions and the options for one way to build a class."""
        build, init = self._init(way.rows[0].marker, name)
        calls: dict[str, str] = {}
        functions: list[str] = []
        for row in way.rows:
            function = self._free(f"{snake_case(name)}_inputs")
            functions.append(_function(function, row.marker, row.axes))
            calls[f"call_{len(calls) + 1}"] = function
        several = ", ".join(f"{call!r}: {function}" for call, function in calls.items())
        options = [f"inputs={calls['call_1'] if len(calls) == 1 else f'{{{several}}}'}", *init]
        # A run without data does not show that integers name rows of another input: pytest finds what may vary.
        known = not any(
            _names_rows(leaf) for row in way.rows for leaf in all_leaves(row.marker.inputs.values())
        )
        return [*functions, *build], [*options, *([f"dims={way.ranges!r}"] if way.ranges and known else [])]

    def _init(self, marker: Marker, name: str) -> tuple[list[str], list[str]]:
        """The function that builds the module, if there is one, and the option ``init``."""
        if marker.init is None:
            function = self._free(f"{snake_case(name)}_module")
            path = marker.group.paths[0]
            factory = self._imports.name(marker.factory)
            text = f"def {function}():\n    return {factory}()[0].get_submodule({path!r})"
            return [text], [f"init={function}"]
        if cast := _cast(marker):
            function = self._free(f"{snake_case(name)}_module")
            given = ", ".join(
                f"{key}={expression(value, self._imports)}" for key, value in marker.init.items()
            )
            return [f"def {function}():\n    return {name}({given}).to({cast})"], [f"init={function}"]
        if not marker.init:
            return [], []
        text = expression(dict(marker.init), self._imports)
        if all(is_scalar(value) for value in marker.init.values()):
            return [], [f"init={text}"]
        function = self._free(f"{snake_case(name)}_arguments")
        # A callable: every build gets fresh objects.
        return [f"def {function}():\n    return {text}"], [f"init={function}"]

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self._taken:
            number += 1
            free = f"{name}_{number}"
        self._taken.add(free)
        return free


def _named(way: _Way) -> str:
    """A name for a way to build a class: where its first module is in the model."""
    return re.sub(r"\W+", "_", way.rows[0].marker.group.paths[0]) or "model"


def _names_rows(value: Any) -> bool:
    return isinstance(value, Shape) and not value.dtype.is_floating_point and value.dtype is not torch.bool


def _function(name: str, marker: Marker, axes: Axes) -> str:
    parameters = ", ".join(f"{dim}: int = {size}" for dim, size in axes.sizes.items())
    names = {dim: dim for dim in axes.sizes}
    described = specs(marker.inputs)

    def text(leaf: str, value: Any) -> str:
        if type(value) in (tuple, list):
            parts = [text(f"{leaf}[{index}]", part) for index, part in enumerate(value)]
            if type(value) is list:
                return f"[{', '.join(parts)}]"
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if type(value) is dict:
            entries = (f"{key!r}: {text(f'{leaf}[{key!r}]', part)}" for key, part in value.items())
            return f"{{{', '.join(entries)}}}"
        if not isinstance(value, Shape):
            return repr(value)
        spec = described[leaf]
        assert isinstance(spec, TensorSpec)  # as the value is a tensor
        return _drawn(value, ", ".join(map(str, axes.shape(leaf, spec, names))), marker)

    drawn = {argument: text(argument, value) for argument, value in marker.inputs.items()}
    alone = len(drawn) == 1 and next(iter(drawn)) == _first_parameter(type(marker.group.module))
    if alone and isinstance(next(iter(marker.inputs.values())), Shape):
        returned = next(iter(drawn.values()))
    else:
        returned = "{" + ", ".join(f"{argument!r}: {text}" for argument, text in drawn.items()) + "}"
    return f"def {name}({parameters}):\n    return {returned}"


def _first_parameter(cls: type[nn.Module]) -> str:
    return list(inspect.signature(original_forward(cls)).parameters)[1]


def _drawn(value: Shape, shape: str, marker: Marker) -> str:
    """An expression for a random tensor."""
    if value.dtype is torch.bool:
        return f"torch.rand({shape}) > 0.5"
    if value.dtype.is_floating_point:
        dtype = "" if _dtype(marker) or value.dtype is torch.float32 else f", dtype={value.dtype}"
        return f"torch.randn({shape}{dtype})"
    dtype = "" if value.dtype is torch.int64 else f", dtype={value.dtype}"
    low, below = _bounds(value, marker)
    return f"torch.randint({f'{low}, ' if low else ''}{below}, ({shape},){dtype})"


def _bounds(value: Shape, marker: Marker) -> tuple[int, int]:
    """The bounds of random integers: those of the run; where it had no data, every weight has so many rows, or an input."""
    if value.range is not None:
        low, below = value.range
        return min(low, 0), max(below, 2)
    rows = [len(each) for each in marker.group.module.parameters() if each.dim() >= 2]
    return 0, max(2, min(rows) if rows else max(value.sizes, default=2))


def _cast(marker: Marker) -> torch.dtype | None:
    """The dtype to which a module is cast that is called with inputs of others; None where none is needed."""
    kinds = _held(marker)
    return kinds.pop() if not _dtype(marker) and len(kinds) == 1 and torch.float32 not in kinds else None


def _held(marker: Marker) -> set[torch.dtype]:
    tensors = [*marker.group.module.parameters(), *marker.group.module.buffers()]
    return {tensor.dtype for tensor in tensors if tensor.is_floating_point()}


def _dtype(marker: Marker) -> str:
    """The floating dtype of the module and of its inputs; empty if there are several, or one that cannot be judged."""
    kinds = _held(marker)
    given = [leaf for leaf in all_leaves(marker.inputs.values()) if isinstance(leaf, Shape)]
    kinds |= {each.dtype for each in given if each.dtype.is_floating_point}
    known = (torch.float32, torch.float16, torch.bfloat16)
    return dtype_name(kinds.pop()) if len(kinds) == 1 and kinds <= set(known) else ""


def _comment(text: str) -> str:
    return "\n".join(
        textwrap.wrap(text, 98, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    )


def _where(group: Group) -> str:
    shown = ", ".join(group.patterns[:3]) + (", …" if len(group.patterns) > 3 else "")
    times = "once a step" if group.calls == 1 else f"{group.calls} times a step"
    return f"{type(group.module).__qualname__} at {shown}, {times}, up to {group.own.headroom / 1e3:.3g} ms"
