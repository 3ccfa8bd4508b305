"""Groups the calls of a run into rows: modules of one class that do the same work."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from kernelllm_judge.target.attributes import is_scalar
from pytest_kernelllm.beside.optimize.report import path_pattern
from pytest_kernelllm.beside.ranking.costs import Cost, Costs
from pytest_kernelllm.beside.ranking.trace import Arguments, Trace


@dataclass(frozen=True)
class Group:
    """The calls of modules that are equal in class, settings, shapes of weights, and arguments."""

    module: nn.Module = field(repr=False)
    """The first module of the row."""
    arguments: Arguments = field(repr=False)
    returned: Any = field(repr=False)
    paths: tuple[str, ...]
    """Paths of all modules, in the order in which they were called."""
    calls: int
    cost: Cost
    """The cost of all calls together, with everything inside them."""
    own: Cost
    """The cost without the modules inside them."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The paths with ``*`` for numbers, each once."""
        return tuple(dict.fromkeys(map(path_pattern, self.paths)))


def groups(trace: Trace, costs: Costs) -> list[Group]:
    """Returns the groups of a run, those first in which a kernel could save most beyond the modules inside."""
    settings: dict[int, tuple[Any, ...]] = {}
    members: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, call in enumerate(trace.calls):
        if id(call.module) not in settings:
            settings[id(call.module)] = _settings(call.module, call.path)
        members[(*settings[id(call.module)], call.arguments.form)].append(index)
    found = [
        Group(
            trace.calls[indices[0]].module,
            trace.calls[indices[0]].arguments,
            trace.calls[indices[0]].returned,
            tuple(dict.fromkeys(trace.calls[i].path for i in indices)),
            len(indices),
            sum((costs.calls[i] for i in indices), Cost()),
            sum((costs.own[i] for i in indices), Cost()),
        )
        for indices in members.values()
    ]
    return sorted(found, key=lambda group: -group.own.headroom)


def _settings(module: nn.Module, path: str) -> tuple[Any, ...]:
    """The module's class, its plain values and the shapes of its weights.

    An integer that is also a number in the path, such as a layer's index, says where the module is, not what it does.
    """
    here = {int(part) for part in path.split(".") if part.isdecimal()}
    values = sorted(
        (name, repr(value))
        for name, value in vars(module).items()
        if is_scalar(value) and not (type(value) is int and value in here and re.search("id|index", name))
    )
    weights: Sequence[Any] = [*module.named_parameters(), *module.named_buffers()]
    shapes = tuple((name, tensor.dtype, tuple(tensor.shape)) for name, tensor in weights)
    return type(module), tuple(values), shapes
