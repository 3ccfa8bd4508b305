"""Merges the texts for several dtypes into one where possible."""

from __future__ import annotations

import ast
from dataclasses import replace

from kernelllm_judge.render.inductor.program_text import Allocation, AutogradText, ProgramText, Statements

_CONVERSION = ".to(tl.float32)"


def merge(a: ProgramText, b: ProgramText) -> ProgramText | None:
    """Merges two texts into one that serves both domains; returns None if that is not possible.

    Kernels may differ only in conversions to float32, which do not change a float32 tensor.
    """
    statements, function = _statements(a.statements, b.statements), None
    if a.function is not None and b.function is not None:
        function = _function(a.function, b.function)
        if function is None:
            return None
    if statements is None or a.names != b.names or len(a.kernels) != len(b.kernels):
        return None
    kernels = []
    for left, right in zip(a.kernels, b.kernels, strict=True):
        both = left if left == right else _more_conversions(left, right)
        if both is None:
            return None
        kernels.append(both)
    return ProgramText(tuple(kernels), a.names, statements, a.helpers | b.helpers, function)


def _function(a: AutogradText, b: AutogradText) -> AutogradText | None:
    """Merges autograd functions, of which one may convert between dtypes as well."""
    forward, backward = _statements(a.forward, b.forward), _statements(a.backward, b.backward)
    if forward is None or backward is None:
        return None
    recomputed = tuple(dict.fromkeys(a.recomputed + b.recomputed))
    both = replace(a, forward=forward, backward=backward, recomputed=recomputed)
    return both if replace(b, forward=forward, backward=backward, recomputed=recomputed) == both else None


def _statements(a: Statements, b: Statements) -> Statements | None:
    """Merges statements; allocations may differ in dtype if an input does, too."""
    if len(a) != len(b):
        return None
    result: list[str | Allocation] = []
    for left, right in zip(a, b, strict=True):
        if isinstance(left, Allocation) and isinstance(right, Allocation):
            both = replace(
                left, dtypes=left.dtypes + right.dtypes, references=left.references + right.references
            )
            if both.text() is None or replace(right, dtypes=left.dtypes, references=left.references) != left:
                return None
            result.append(both)
        elif left == right:
            result.append(left)
        else:
            return None
    return tuple(result)


def _more_conversions(left: str, right: str) -> str | None:
    """Returns the kernel with more conversions to float32; None if the two differ in anything else."""
    plain = [ast.dump(ast.parse(text.replace(_CONVERSION, ""))) for text in (left, right)]
    return max(left, right, key=lambda text: text.count(_CONVERSION)) if plain[0] == plain[1] else None
