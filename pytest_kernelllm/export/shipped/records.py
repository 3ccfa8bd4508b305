"""The domains that a kernel module declares, for the check of every call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Scalar = bool | int | float | str | None


def is_pin(name: str) -> bool:
    """Whether a name among a domain's attributes is that of a pin, see ``names``."""
    return name.startswith(("value:", "global:", "order:", "same:"))


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a domain: dtype name (``float32``) and shape, each entry a size or a dimension's name."""

    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Domain:
    """One domain that a kernel was verified on. Tensors are contiguous and on one CUDA device."""

    inputs: Mapping[str, TensorSpec | Scalar]
    attributes: Mapping[str, TensorSpec | Scalar]
    dims: Mapping[str, tuple[int, int]]
    training: bool
    grad: bool


def domains(supports: Iterable[Mapping[str, Any]]) -> tuple[Domain, ...]:
    """Converts a kernel module's ``SUPPORTS`` to records."""
    return tuple(
        Domain(
            inputs={name: _spec(value) for name, value in each["inputs"].items()},
            attributes={name: _spec(value) for name, value in each["attributes"].items()},
            dims=each["dims"],
            training=each["training"],
            grad=each["grad"],
        )
        for each in supports
    )


def _spec(value: Any) -> TensorSpec | Scalar:
    if isinstance(value, dict):  # a NaN, which has no literal
        return float(value["float"])
    return TensorSpec(*value) if isinstance(value, tuple) else value
