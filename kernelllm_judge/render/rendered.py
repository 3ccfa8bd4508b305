"""The result of translating a completion, from which a kernel module is composed."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.core.records import Domain


@dataclass(frozen=True)
class Rendered:
    """The parts of a kernel module that depend on the completion (see ``kernel_module.compose``)."""

    body: str
    """Kernels, helpers and ``forward``, without the imports of torch, triton and triton.language."""
    docstring: str
    supports: tuple[Domain, ...]
