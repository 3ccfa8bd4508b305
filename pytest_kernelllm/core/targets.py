"""What a target is, and what a kernel for it was made for. It is apart from the other records because the pre-commit hook imports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pytest_kernelllm.core.record import Record

Scalar = bool | int | float | str | None


def is_pin(name: str) -> bool:
    """Whether a name among a domain's attributes is that of a pin, see ``core.pins.names``."""
    return name.startswith(("value:", "global:", "order:", "same:"))


@dataclass(frozen=True)
class Target(Record):
    """An ``nn.Module`` class marked ``@triton_candidate``, as the static scan sees it."""

    path: str
    """File that holds the marker, POSIX form, relative to the project root."""
    name: str
    """Name in ids: the class's qualified name (``RMSNorm``, ``Outer.Inner``)."""
    line: int
    """1-based line of the marker."""
    source_hash: str
    """Hash of everything the class's behaviour depends on, see ``discover.source_hash``."""
    kind: Literal["decorator", "call", "kernelbench"]
    kernel: str | None = None
    """Dotted path of the adopted kernel module, from ``kernel=``."""

    @property
    def id(self) -> str:
        """``src/layers.py::RMSNorm``, how ids, the store and the reports name it."""
        return f"{self.path}::{self.name}"


@dataclass(frozen=True)
class TensorSpec(Record):
    """A tensor of a domain: dtype name (``float32``) and shape, each entry a size or a dimension's name."""

    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Domain(Record):
    """One region a kernel was made for and verified on. Tensors are contiguous, on one CUDA device."""

    inputs: dict[str, TensorSpec | Scalar]
    """By parameter name of the target's ``forward``; arguments left at their default are not listed."""
    attributes: dict[str, TensorSpec | Scalar]
    """By dotted name (``weight``, ``fc.bias``, ``eps``): parameters and buffers, and plain values and pins that must match."""
    dims: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Inclusive range of each named dimension."""
    training: bool = False
    grad: bool = False
    """Whether the kernel also computes gradients."""


@dataclass(frozen=True)
class Case(Record):
    """One named way to call a target, with its domain and how to build it again."""

    name: str
    """``default``, ``default-bfloat16``, ``long-float32``…"""
    dtype: str | None
    """Floating dtype that module and inputs are cast to (``float32``), or None: as the user made them."""
    domain: Domain
    sizes: dict[str, int] = field(default_factory=dict)
    """The size of each named dimension in this case."""
    dims_within_32_bits: dict[str, tuple[int, int]] | None = None
    """The ranges that are for kernels with 32-bit offsets: in them, inputs and outputs have fewer than 2**31 elements.
    None: all of the domain's."""
