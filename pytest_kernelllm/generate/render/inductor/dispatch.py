"""Writes the conditions by which ``forward`` chooses between domains."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from pytest_kernelllm.core.records import Scalar, TensorSpec
from pytest_kernelllm.core.syntax import literal
from pytest_kernelllm.generate.render.errors import RenderError
from pytest_kernelllm.generate.render.visible import is_own

Specs = Mapping[str, TensorSpec | Scalar]
"""What ``forward`` can read in one domain, by expression."""


def conditions(groups: Sequence[Sequence[Specs]]) -> list[str]:
    """Writes for each group of domains an expression over ``self`` and forward's parameters that holds only in it.

    Raises:
        RenderError: two groups cannot be told apart by dtypes, shapes or plain values.
    """
    everything = [domain for group in groups for domain in group]
    names = list(dict.fromkeys(name for domain in everything for name in domain))
    distinguishing = [name for name in names if len({repr(domain.get(name)) for domain in everything}) > 1]
    # Tests of inputs are preferred to tests of the module's attributes.
    inputs = [name for name in distinguishing if not is_own(name)]
    result = []
    for group in groups:
        tests = list(dict.fromkeys(_test(domain, inputs or distinguishing, everything) for domain in group))
        result.append(
            " or ".join(f"({t})" if " and " in t else t for t in tests) if len(tests) > 1 else tests[0]
        )
    if len(set(result)) < len(result):
        raise RenderError("Two cases need different kernels, but nothing that forward sees tells them apart.")
    return result


def _test(domain: Specs, names: Sequence[str], everything: Sequence[Specs]) -> str:
    parts = []
    for name in names:
        value = domain.get(name)
        others = [other.get(name) for other in everything]
        if not isinstance(value, TensorSpec):
            parts.append(
                f"{name} is {value}"
                if value is None or isinstance(value, bool)
                else f"{name} == {ast.unparse(literal(value))}"
            )
            continue
        specs = [o for o in others if isinstance(o, TensorSpec)]
        if len(specs) < len(others):
            parts.append(f"{name} is not None")
        if len({s.dtype for s in specs}) > 1:
            parts.append(f"{name}.dtype == torch.{value.dtype}")
        if len({len(s.shape) for s in specs}) > 1:
            parts.append(f"{name}.dim() == {len(value.shape)}")
        for dim, size in enumerate(value.shape):
            sizes = {s.shape[dim] for s in specs if len(s.shape) == len(value.shape)}
            if len(sizes) > 1 and isinstance(size, int):
                parts.append(f"{name}.shape[{dim}] == {size}")
    return " and ".join(dict.fromkeys(parts)) or "True"
