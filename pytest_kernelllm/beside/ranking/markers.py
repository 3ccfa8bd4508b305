"""Writes markers with the inputs and constructor arguments of a run."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from kernelllm_judge.core.syntax import snake_case
from kernelllm_judge.core.targets import TensorSpec
from kernelllm_judge.target.attributes import dtype_name, is_scalar
from kernelllm_judge.target.build import original_forward
from kernelllm_judge.target.cases import Described, Ranges, Sizes
from kernelllm_judge.target.varying import Axes, free_dims, leading_axes, runs_without_data
from kernelllm_judge.target.work import empty_tensors
from kernelllm_runtime.leaves import all_leaves, leaves
from pytest_kernelllm.beside.ranking.construction import Constructions
from pytest_kernelllm.beside.ranking.expressions import Imports, Inexpressible, expression
from pytest_kernelllm.beside.ranking.rows import Group
from pytest_kernelllm.beside.ranking.trace import Shape

Factory = Callable[[], Any]


@dataclass(frozen=True)
class Marker:
    """The marker of a group of modules."""

    group: Group = field(repr=False)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of ``forward`` by parameter."""
    init: Mapping[str, Any] | None = None
    """Arguments of the constructor; None if the module is taken from the factory's model."""
    factory: Factory | None = None
    left_out: tuple[str, ...] = ()
    """What the run passed and the marker does not, because no source can write it; kernels run in calls without it."""
    reason: str = ""
    """Why it cannot be marked; the rest is empty then."""


def marker_for(group: Group, constructions: Constructions, factory: Factory | None) -> Marker:
    """Returns how a group can be marked, or why it cannot.

    Args:
        factory: builds the whole model, for modules whose arguments cannot be written.
    """
    cls = type(group.module)
    try:
        inputs, left_out = _inputs(group)
        Imports().name(cls)
        init = constructions.arguments(group.module)
        if init is not None:
            try:
                expression(dict(init), Imports())
                return Marker(group, inputs, init, left_out=left_out)
            except Inexpressible as error:
                why = f"its constructor takes {error}"
        else:
            why = "how it is built is not known, give rank() a factory"
        if factory is None:
            raise Inexpressible(why)
        Imports().name(factory)
    except Inexpressible as error:
        return Marker(group, reason=str(error))
    return Marker(group, inputs, None, factory, left_out)


def _inputs(group: Group) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments of ``forward`` by parameter, without those at their defaults; and what a marker leaves out.

    Left out is what no domain can hold, such as a cache of keys and values, if the module runs without it.

    Raises:
        Inexpressible: what is passed or returned can be no part of a domain.
    """
    signature = inspect.signature(original_forward(type(group.module)))
    try:
        bound = signature.bind(None, *group.arguments.args, **group.arguments.kwargs).arguments
    except TypeError:
        raise Inexpressible("its arguments do not fit the signature of forward") from None
    given: dict[str, Any] = {}
    left_out: list[str] = []
    odd: list[str] = []
    for name, value in list(bound.items())[1:]:
        parameter = signature.parameters[name]
        if is_scalar(value) and type(value) is type(parameter.default) and value == parameter.default:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise Inexpressible(f"its arguments go into *{name}")
        if parameter.kind is parameter.VAR_KEYWORD:
            left_out += [f"`{each}`, which goes into **{name}" for each in value]
            odd += [f"its argument `{each}` goes into **{name}" for each in value]
        elif _judged(value):
            given[name] = value
        elif parameter.default is parameter.empty:
            raise Inexpressible(f"its argument `{name}` {_kind(value)}")
        else:
            left_out.append(f"`{name}`, which {_kind(value)}")
            odd.append(f"its argument `{name}` {_kind(value)}")
    if not any(isinstance(leaf, Shape) for leaf in all_leaves(given.values())):
        raise Inexpressible("it is called without a tensor")
    if left_out and not runs_without_data(group.module, empty_tensors(_specs(given))):
        raise Inexpressible(odd[0])
    if (found := _odd(group.returned)) is not None:
        raise Inexpressible(f"it returns {_a(found.__qualname__)}")
    return given, tuple(left_out)


def _judged(value: Any) -> bool:
    """Whether an argument is what a domain holds: a tensor, a plain value, or a tuple of these."""
    leaves = all_leaves([value])
    return all(isinstance(leaf, Shape) or is_scalar(leaf) for leaf in leaves)


def _kind(value: Any) -> str:
    odd = next((x for x in all_leaves([value]) if not (isinstance(x, Shape) or is_scalar(x))), None)
    kind = odd if isinstance(odd, type) else type(odd)
    return f"{'holds' if type(value) is tuple and value else 'is'} {_a(kind.__qualname__)}"


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"


def _odd(returned: Any) -> type | None:
    """The type of the first thing that is neither a tensor nor None, in what a module returns."""
    if isinstance(returned, tuple | list | dict):
        parts = returned.values() if isinstance(returned, dict) else returned
        return next((odd for each in parts if (odd := _odd(each))), None)
    if returned is None or isinstance(returned, Shape):
        return None
    return returned if isinstance(returned, type) else type(returned)


def markers_file(title: str, markers: Sequence[Marker]) -> str:
    """Returns a Python file with markers, one for each class.

    Args:
        markers: of the groups to mark, the most promising first. Others are listed with their reasons.
    """
    imports = Imports()
    writer = _Writer(imports)
    blocks: list[str] = []
    by_class: dict[type, list[Marker]] = {}
    for marker in markers:
        if marker.reason:
            blocks.append(_comment(f"Not marked, because {marker.reason}: {_where(marker.group)}"))
        else:
            by_class.setdefault(type(marker.group.module), []).append(marker)
    marked = [writer.block(cls, same) for cls, same in by_class.items()]
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


class _Writer:
    """Writes the functions and the call of each marker."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports
        self._taken: set[str] = set()

    def block(self, cls: type[nn.Module], markers: Sequence[Marker]) -> str:
        """The marker of one class; calls with other constructor arguments or dtypes than the first are listed."""
        name = self._imports.name(cls)
        first = markers[0]
        build, init = self._init(first, name)
        dtype = _dtype(first)
        same = [each for each in markers if (each.init, _dtype(each)) == (first.init, dtype)]
        cases: dict[str, str] = {}
        functions: list[str] = []
        dims: dict[str, tuple[int, int]] = {}
        for number, marker in enumerate(same, 1):
            axes, ranges = _free(marker)
            function = self._free(f"{snake_case(name)}_inputs")
            functions.append(_function(function, marker, axes))
            cases[f"call_{number}"] = function
            for dim, (low, high) in ranges.items():
                least, most = dims.get(dim, (low, high))
                dims[dim] = (max(low, least), max(high, most))
        inputs = (
            next(iter(cases.values()))
            if len(cases) == 1
            else f"{{{', '.join(f'{k!r}: {v}' for k, v in cases.items())}}}"
        )
        options = [f"inputs={inputs}", *init]
        options += [f"dtypes=({dtype!r},)"] if dtype else []
        options += [f"dims={dims!r}"] if dims else []
        comments = [_comment(_where(marker.group)) for marker in same]
        others = [marker for marker in markers if marker not in same]
        comments += [
            _comment(f"Built in another way, so mark it in another file: {_where(marker.group)}")
            for marker in others
        ]
        call = "triton_candidate(\n    " + f"{name},\n    " + ",\n    ".join(options) + ",\n)"
        return "\n\n".join([*functions, *build, "\n".join([*comments, call])])

    def _init(self, marker: Marker, name: str) -> tuple[list[str], list[str]]:
        """The function that builds the module, if there is one, and the option ``init``."""
        if marker.init is None:
            function = self._free(f"{snake_case(name)}_module")
            path = marker.group.paths[0]
            factory = self._imports.name(marker.factory)
            text = f"def {function}():\n    return {factory}()[0].get_submodule({path!r})"
            return [text], [f"init={function}"]
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


def _free(marker: Marker) -> tuple[Axes, Ranges]:
    """The axes that may vary, and in which ranges: as far as the module runs without data."""
    shown = _specs(marker.inputs)
    axes = leading_axes(shown)

    def runs(sizes: Sizes) -> bool:
        return runs_without_data(marker.group.module, empty_tensors(axes.resized(shown, sizes)))

    ranges = free_dims(axes.sizes, runs)
    return axes.only(ranges), ranges


def _specs(inputs: Mapping[str, Any]) -> Described:
    """The arguments by leaf."""
    every = [leaf for name, value in inputs.items() for leaf in leaves(name, value)]
    return {name: TensorSpec(dtype_name(x.dtype), x.sizes) if isinstance(x, Shape) else x for name, x in every}


def _function(name: str, marker: Marker, axes: Axes) -> str:
    parameters = ", ".join(f"{dim}: int = {size}" for dim, size in axes.sizes.items())
    names = {dim: dim for dim in axes.sizes}
    specs = _specs(marker.inputs)

    def text(leaf: str, value: Any) -> str:
        if type(value) is tuple and value:
            parts = [text(f"{leaf}[{index}]", part) for index, part in enumerate(value)]
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if not isinstance(value, Shape):
            return repr(value)
        spec = specs[leaf]
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
    return f"torch.randint({_below(value, marker)}, ({shape},){dtype})"


def _below(value: Shape, marker: Marker) -> int:
    """The bound of random integers: that of the run, or where it had no data, a module's rows or the largest size."""
    if value.below is not None:
        return max(value.below, 2)
    table = next((p for p in marker.group.module.parameters() if p.dim() == 2), None)
    return len(table) if table is not None else max((2, *value.sizes))


def _dtype(marker: Marker) -> str:
    """The floating dtype of the module and of its inputs; empty if there are several, or one that cannot be judged."""
    held = [*marker.group.module.parameters(), *marker.group.module.buffers()]
    kinds = {tensor.dtype for tensor in held if tensor.is_floating_point()}
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
