"""What a target is, and what a kernel for it was made for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernelllm_runtime.record import NON_FINITE, Record

Scalar = bool | int | float | str | None


def is_pin(name: str) -> bool:
    """Whether a name among a domain's attributes is that of a pin, see ``pins.names``."""
    return name.startswith(("value:", "global:", "order:", "same:", "setting:"))


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
    """Hash of everything the class's behaviour depends on, see ``source.source_hash``."""
    kind: Literal["decorator", "call", "kernelbench"]
    kernel: str | None = None
    """Dotted path of the adopted kernel module, from ``kernel=``."""
    trained: str = ""
    """Why gradients of it will be wanted, such as ``it is a loss``; empty if its file shows nothing of the kind."""

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
    aligned: bool = False
    """Whether every tensor must start at a multiple of 16 bytes, as tensor descriptors ask."""
    returns: str = ""
    """The dataclass that ``forward`` returns, as ``module:Class``: the kernel gives a dict of its fields. Empty: neither."""


def domains(supports: Iterable[Mapping[str, Any]]) -> tuple[Domain, ...]:
    """Returns the value of a kernel module's ``SUPPORTS`` as records.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is not of the published form.
    """
    return tuple(_domain(item) for item in supports)


def _domain(item: Mapping[str, Any]) -> Domain:
    return Domain(
        inputs={k: _spec(v) for k, v in item["inputs"].items()},
        attributes={k: _spec(v) for k, v in item["attributes"].items()},
        dims={k: (int(low), int(high)) for k, (low, high) in item["dims"].items()},
        training=bool(item["training"]),
        grad=bool(item["grad"]),
        aligned=bool(item.get("aligned", False)),
        returns=str(item.get("returns", "")),
    )


def _spec(value: Any) -> TensorSpec | Scalar:
    if isinstance(value, Mapping):
        return NON_FINITE[value["float"]]
    if isinstance(value, tuple):
        dtype, shape = value
        return TensorSpec(dtype, tuple(shape))
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"{value!r} is neither a scalar nor (dtype, shape)")
