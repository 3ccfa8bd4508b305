"""Writes the docstring of a kernel module: which kernels compute what, on which shapes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelllm_judge.core.parts import Parts
from kernelllm_judge.core.records import Case, TensorSpec
from kernelllm_judge.core.syntax import call_name, is_jitted
from kernelllm_judge.render.visible import visible

if TYPE_CHECKING:
    from kernelllm_judge.target.live import LiveTarget


_VIEWS = frozenset(
    {"transpose", "unsqueeze", "device", "is_grad_enabled", "no_grad", "arange", "empty"}
    | {"empty_like", "empty_permuted", "empty_strided", "full", "full_like", "ones", "ones_like"}
    | {"tensor", "zeros", "zeros_like", "as_strided", "broadcast_to", "flatten", "permute", "reshape"}
    | {"squeeze"}
)
"""Functions of torch that compute nothing."""


def left_to_torch(body: str, live: LiveTarget) -> list[str]:
    """Returns what the functions of a kernel module leave to torch: layers (``self.conv``) and functions that compute.

    Args:
        body: text of the functions.
        live: the target.
    """
    found: dict[str, None] = {}
    layers = live.cases[0].domain.attributes
    for function in ast.parse(body).body:
        if not isinstance(function, ast.FunctionDef) or is_jitted(function):
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            name = call_name(node)
            if f"{live.parts.name(node.func)}.__class__" in layers:
                found.setdefault(ast.unparse(node.func))
            elif name.startswith("torch.") and name.rpartition(".")[2] not in _VIEWS:
                found.setdefault(name.removeprefix("torch.").removeprefix("nn.functional."))
    return list(found)


def describe(live: LiveTarget, kernels: Sequence[str], torch: Sequence[str] = ()) -> str:
    """Returns a summary line, and the inputs and weights of each case.

    Args:
        live: the target.
        kernels: the names of the Triton kernels, in the order in which ``forward`` reaches them.
        torch: what is left to torch, see ``left_to_torch``.
    """
    by = f" by {', '.join(dict.fromkeys(kernels))}" if kernels else ""
    left = [f"Left to torch: {', '.join(torch)}."] if torch else []
    lines = [f"{live.target.name}{by}.", *left, ""]
    return "\n".join([*lines, *(f"{case.name}: {_shapes(case, live.parts)}" for case in live.cases)])


def _shapes(case: Case, parts: Parts) -> str:
    specs = visible(case.domain, parts)
    tensors = {name: spec for name, spec in specs.items() if isinstance(spec, TensorSpec)}
    text = [f"{n} {spec.dtype} ({', '.join(str(s) for s in spec.shape)})" for n, spec in tensors.items()]
    return "; ".join([*text[:6], "…"] if len(text) > 6 else text) or "no tensors"
