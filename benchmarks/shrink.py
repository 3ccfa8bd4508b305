"""Shrinks a problem of KernelBench by rule, so that Triton's interpreter can run a kernel for it."""

from __future__ import annotations

import ast
import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

KEPT = 16
"""Numbers up to this stay while that suffices: kernel sizes, strides, groups, heads."""

ELEMENTS = 1 << 15
"""The most elements that the operations of a call may write, together with its inputs…"""

FLOPS = 1 << 23
"""…and the most floating-point operations of its products and convolutions."""


def shrunk(source: str) -> str:
    """Returns a problem with smaller sizes; its own text where none of them work.

    All numbers above ``KEPT`` that the module assigns, or that ``get_inputs`` holds, are halved equally often, down to
    ``KEPT``, the size of a batch down to 2; odd numbers stay odd. If that is not enough, so are those above 8 and above 4,
    and at last less often, for sizes that depend on each other. The first that is small enough is taken, else the smallest that runs.
    """
    best, least, last = source, math.inf, ""
    for halvings, floor in [*((n, KEPT) for n in range(0, 17, 2)), (16, 8), (16, 4), (4, 4), (3, 4)]:
        text = _halved(source, halvings, floor)
        if text == last:
            continue
        last = text
        work = _work(text)
        if work is not None and work < least:
            best, least = text, work
        if least <= 1.0:
            break
    return best


def _halved(source: str, times: int, floor: int) -> str:
    tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.Assign) or (isinstance(node, ast.FunctionDef) and node.name == "get_inputs"):
            batch = isinstance(node, ast.Assign) and "batch" in ast.unparse(node.targets[0])
            for constant in ast.walk(node):
                if isinstance(constant, ast.Constant) and type(constant.value) is int:
                    constant.value = _smaller(constant.value, times, 2 if batch else floor)
    return ast.unparse(tree) + "\n"


def _smaller(number: int, times: int, floor: int) -> int:
    return number if number <= floor else max(number >> times, floor) | (number & 1)


def _work(source: str) -> float | None:
    """Returns the work of a call, 1 being as much as is allowed; None if the problem does not run at these sizes."""
    names: dict[str, Any] = {"__name__": "problem"}
    counted, flops = _Elements(), FlopCounterMode(display=False)
    try:
        with torch.device("meta"), torch.no_grad():
            exec(compile(source, "problem.py", "exec"), names)
            model, inputs = names["Model"](*names["get_init_inputs"]()), names["get_inputs"]()
            with flops, counted:
                model.eval()(*inputs)
    except Exception:  # whatever torch says of sizes that do not fit together
        return None
    counted.count([inputs, list(model.parameters())])
    return max(counted.elements / ELEMENTS, flops.get_total_flops() / FLOPS)


class _Elements(TorchDispatchMode):
    """Counts the elements of operations' results."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def count(self, values: Any) -> None:
        """Adds the elements of all tensors in a structure."""
        self.elements += sum(leaf.numel() for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.count(made)
        return made
