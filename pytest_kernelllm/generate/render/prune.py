"""Leave out what nothing reads: buffers kept for a backward pass that never comes, and the stores to them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_kernelllm.generate.render.program import Assign, Kernel, Launch, Step
from pytest_kernelllm.generate.render.tidy import drop_stores, loads, stores, tidy
from pytest_kernelllm.generate.render.trees import names
from pytest_kernelllm.generate.render.wrapper import runtime_parameters


@dataclass(frozen=True)
class Pruned:
    """What is left: steps, and the kernels as they are to be written."""

    steps: tuple[Step, ...]
    functions: Mapping[str, ast.FunctionDef]


def prune(
    steps: Sequence[Step],
    functions: Mapping[str, ast.FunctionDef],
    kernels: Mapping[str, Kernel],
    returned: Sequence[ast.expr],
) -> Pruned:
    """Go backwards from what is returned.

    Args:
        steps: of the program.
        functions: each launched kernel, lowered.
        kernels: as read.
        returned: the results that are used.
    """
    live = {name for value in returned for name in names(value)}
    allocated = {s.name for s in steps if isinstance(s, Assign)}
    launches = Counter(s.kernel for s in steps if isinstance(s, Launch))
    kept: list[Step] = []
    result: dict[str, ast.FunctionDef] = {}
    for step in reversed(steps):
        if isinstance(step, Launch):
            parameters = [a.arg for a in runtime_parameters(functions[step.kernel])]
            given = dict(zip(parameters, step.arguments, strict=True))
            function = functions[step.kernel]
            if launches[step.kernel] == 1:
                dead = {
                    p
                    for p in stores(function) - loads(function)
                    if p in given and names(given[p]) <= allocated - live
                }
                function = drop_stores(function, dead)
            function = result.setdefault(step.kernel, tidy(function, kernels[step.kernel].types))
            if not stores(function):
                continue
            used = names(function)
            live |= {name for p, value in given.items() if p in used for name in names(value)}
            kept.append(step)
        elif not isinstance(step, Assign) or step.name in live:
            kept.append(step)
            live |= names(step.value)
    return Pruned(tuple(reversed(kept)), result)
