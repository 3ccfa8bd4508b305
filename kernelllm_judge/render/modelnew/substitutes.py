"""Replaces the functions that a hand-written kernel takes from libdevice and similar modules."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from kernelllm_judge.core.syntax import read_names
from kernelllm_judge.render.errors import RenderError
from kernelllm_judge.render.lower import device_functions, lacks, lower

_HELPERS = frozenset({"libdevice", "tl_math", "triton_helpers"})


def with_substitutes(
    kernel: ast.FunctionDef, top: Mapping[str, ast.stmt]
) -> tuple[ast.FunctionDef, frozenset[str]]:
    """Lowers a kernel to plain ``tl`` and returns it with the names of the device functions that it calls.

    Args:
        kernel: a ``@triton.jit`` function in canonical spelling.
        top: the completion's top-level definitions.

    Raises:
        RenderError: a function has no plain form, or the completion defines a function of the substitute's
            name.
    """
    if not (read_names(kernel) & _HELPERS or lacks(kernel)):
        return kernel, frozenset()
    lowered = lower(kernel, [node for node in top.values() if isinstance(node, ast.FunctionDef)], top)
    lowered.decorator_list = kernel.decorator_list
    if ast.get_docstring(kernel) is not None:
        lowered.body.insert(0, kernel.body[0])
    new = frozenset(name for name in read_names(lowered) - read_names(kernel) if device_functions([name]))
    if taken := sorted(new & set(top)):
        raise RenderError(
            f"Line {kernel.lineno}: the completion's own `{taken[0]}` would hide the substitute for libdevice's."
        )
    return lowered, new
