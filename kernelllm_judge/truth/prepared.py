"""Defines prepared probes: inputs, a module, and the outputs that a candidate must give for them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelllm_judge.core import accelerator
from kernelllm_judge.truth import calls
from kernelllm_judge.truth.fingerprint import fingerprints
from kernelllm_judge.truth.numerics import Expected
from kernelllm_judge.truth.probes import Probe

Mark = tuple[Any, ...]
"""A piece's first row, and the fingerprints of its outputs."""


@dataclass(frozen=True)
class Sliced:
    """The reference outputs of a large probe, computed piece by piece, see ``slices``."""

    structure: Any
    """How the leaves nest, see ``shared.structure``."""
    original: tuple[torch.Tensor, ...]
    """The leaves' shapes, strides and dtypes: tensors on the meta device."""
    pieces: tuple[slice, ...]
    """Rows whose expected outputs are computed when they are needed; they cover all."""
    expect: Callable[[slice, bool], Expected] = field(repr=False)
    """Computes the expected outputs of some rows, closely or not, see ``Truth.expected``."""
    expect_strictly: Callable[[slice], Expected | None] = field(repr=False)
    """Computes stricter bounds with less effort: what passes them is right, see ``Truth.strictly``."""
    run: Callable[[slice], Sequence[torch.Tensor]] = field(repr=False)
    """Runs the original for some rows."""
    passed: set[Mark] = field(default_factory=set, repr=False)
    """The outputs of pieces that were right: equal ones need no comparison."""
    secret: int = field(default_factory=lambda: secrets.randbits(62), repr=False)
    """The seed of fingerprints, which no candidate must know."""

    def marks(self, pieces: Sequence[slice], outputs: Sequence[torch.Tensor]) -> list[Mark]:
        """Returns what identifies a candidate's outputs in the rows of each piece."""
        parts = [output[rows] for rows in pieces for output in outputs]
        found = iter(fingerprints(parts, self.secret))
        return [(rows.start, *(next(found) for _ in outputs)) for rows in pieces]

    def remember(self, right: Mapping[Mark, slice], outputs: Sequence[torch.Tensor]) -> None:
        """Notes the outputs of pieces that were found right.

        Only what still has its mark: what was compared was the same, unless it changed twice meanwhile.
        """
        self.passed.update(right.keys() & self.marks(list(right.values()), outputs))


@dataclass(frozen=True)
class Updates:
    """The buffers that the original updates in a call, and what they hold then."""

    names: tuple[str, ...] = ()
    """Dotted names."""
    expected: Expected = field(default_factory=lambda: Expected(None, (), (), ()))


@dataclass(frozen=True)
class PreparedProbe:
    """One probe with its inputs, module and reference outputs, ready to be uploaded to a worker."""

    probe: Probe
    module: torch.nn.Module
    arguments: dict[str, Any]
    expected: Expected | Sliced
    trivial: str | None
    """Name of a trivial output that would pass, so that this probe cannot tell right from wrong; None if
    none would."""
    updates: Updates = field(default_factory=Updates)
    closely: Callable[[], tuple[Expected, Expected]] | None = field(default=None, repr=False)
    """Computes ``expected``, and what is expected of the updates, with more effort, for an output that would be wrong. None
    where that is all there is."""
    in_tf32: Callable[[], Expected | None] | None = field(default=None, repr=False)
    """Without a GPU: computes what is expected where a kernel may use TF32, as the original may on a GPU; None if it makes no
    difference."""

    without_shortcuts: Callable[[], Expected | None] | None = field(default=None, repr=False)
    """Computes what is expected where infinities are not lost in a shortcut of PyTorch's; None if it takes none, or none is asked."""

    def callable_module(self) -> torch.nn.Module:
        """Returns the module, to be called as often as one likes; a copy where calls update its buffers."""
        if not self.updates.names:
            return self.module
        return calls.copied(self.module, lambda parameter: parameter, torch.clone)

    @property
    def on_gpu(self) -> bool:
        """Whether the module runs on a GPU."""
        return any(
            accelerator.is_gpu(t.device)
            for t in tensors_of_call(self.module, self.arguments, self.expected.original)
        )

    @property
    def bytes(self) -> int:
        """Bytes of inputs, parameters, buffers and outputs together."""
        return bytes_of(tensors_of_call(self.module, self.arguments, self.expected.original))


def tensors_of_call(
    module: torch.nn.Module, arguments: dict[str, Any], outputs: Iterable[Any]
) -> list[torch.Tensor]:
    """Returns all tensors that a call reads and writes."""
    values = [*arguments.values(), *module.parameters(), *module.buffers(), *outputs]
    return [value for value in values if isinstance(value, torch.Tensor)]


def bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Returns the bytes of all elements."""
    return sum(t.numel() * t.itemsize for t in tensors)


def form_of(leaf: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the same shape, strides and dtype without data."""
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
