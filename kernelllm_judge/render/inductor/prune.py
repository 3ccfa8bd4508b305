"""Removes what nothing reads: buffers that are kept for a backward pass, and the stores to them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelllm_judge.core.syntax import read_names
from kernelllm_judge.render.inductor.program import Assign, Do, KernelSource, Launch, Step, names_read
from kernelllm_judge.render.inductor.tidy import drop_stores, loads, stores, tidy
from kernelllm_judge.render.inductor.torch_calls import allocation, is_allocation, is_contiguous
from kernelllm_judge.render.inductor.wrapper import runtime_parameters


def _tensors(node: ast.expr) -> set[str]:
    return read_names(node) - {"reinterpret_tensor"}


@dataclass(frozen=True)
class Pruned:
    """The steps that are needed, and their kernels."""

    steps: tuple[Step, ...]
    functions: Mapping[str, ast.FunctionDef]


def prune(
    steps: Sequence[Step],
    functions: Mapping[str, ast.FunctionDef],
    kernels: Mapping[str, KernelSource],
    returned: Sequence[ast.expr],
) -> Pruned:
    """Keeps the steps and stores that the returned values need."""
    live = {name for value in returned for name in read_names(value)}
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
                    if p in given and _tensors(given[p]) <= allocated - live
                }
                function = drop_stores(function, dead)
            if step.kernel not in result:
                result[step.kernel] = tidy(function, kernels[step.kernel].types)
            function = result[step.kernel]
            if not stores(function):
                continue
            used = read_names(function)
            live |= {name for p, value in given.items() if p in used for name in read_names(value)}
            kept.append(step)
        elif not isinstance(step, Assign) or step.name in live:
            kept.append(step)
            live |= read_names(step.value)
    return Pruned(tuple(reversed(kept)), result)


def fold_outputs(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Turns ``b = empty(...)``, ``mm(x, y, out=b)`` into ``b = mm(x, y)`` if nothing uses ``b`` in between."""
    result: list[Step] = []
    for step in steps:
        out = _out(step) if isinstance(step, Do) else None
        made = next((s for s in result if isinstance(s, Assign) and s.name == out), None)
        if (
            isinstance(step, Do)
            and isinstance(step.value, ast.Call)
            and made is not None
            and _plain(made.value)
        ):
            between = result[result.index(made) + 1 :]
            if not any(made.name in names_read(s) for s in between):
                call = ast.Call(
                    step.value.func, step.value.args, [k for k in step.value.keywords if k.arg != "out"]
                )
                result.remove(made)
                result.append(Assign(made.name, call))
                continue
        result.append(step)
    return tuple(result)


def _out(step: Do) -> str | None:
    keywords = step.value.keywords if isinstance(step.value, ast.Call) else []
    return next((k.value.id for k in keywords if k.arg == "out" and isinstance(k.value, ast.Name)), None)


def _plain(value: ast.expr) -> bool:
    """Whether a value is a row-major allocation, as a library call would return."""
    if not (isinstance(value, ast.Call) and is_allocation(value)):
        return False
    shape, strides, _ = allocation(value)
    return is_contiguous(shape, strides)
