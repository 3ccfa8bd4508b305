"""What a target is, and what a kernel for it was made for. It is apart from the other records because the pre-commit hook imports it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelllm_runtime.record import Record
from kernelllm_runtime.targets import Domain, Scalar, Target, TensorSpec, is_pin

__all__ = ["Case", "Domain", "Scalar", "Target", "TensorSpec", "is_pin"]


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
