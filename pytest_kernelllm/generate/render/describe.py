"""Writes the docstring of a kernel module: which kernels compute what, on which shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_kernelllm.core.parts import Parts
from pytest_kernelllm.core.records import Case, TensorSpec
from pytest_kernelllm.generate.render.visible import visible

if TYPE_CHECKING:
    from pytest_kernelllm.discover.live import LiveTarget


def describe(live: LiveTarget, kernels: Sequence[str]) -> str:
    """Returns a summary line, and the inputs and weights of each case.

    Args:
        live: the target.
        kernels: the names of the Triton kernels, in the order in which ``forward`` reaches them.
    """
    by = f" by {', '.join(dict.fromkeys(kernels))}" if kernels else ""
    lines = [f"{live.target.name}{by}.", ""]
    return "\n".join([*lines, *(f"{case.name}: {_shapes(case, live.parts)}" for case in live.cases)])


def _shapes(case: Case, parts: Parts) -> str:
    specs = visible(case.domain, parts)
    tensors = {name: spec for name, spec in specs.items() if isinstance(spec, TensorSpec)}
    text = [f"{n} {spec.dtype} ({', '.join(str(s) for s in spec.shape)})" for n, spec in tensors.items()]
    return "; ".join([*text[:6], "…"] if len(text) > 6 else text) or "no tensors"
