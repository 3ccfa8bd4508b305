"""Recognises, bit by bit, what a timed call gave and was right before: most kernels give the same for the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from kernelllm_judge.truth.probes import Probe

CHUNK = 1 << 29
"""Bytes that are compared at once: a comparison takes as much memory again."""

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their size in bytes: PyTorch compares them faster than single bytes."""


@dataclass
class RightBefore:
    """Keeps one copy for each probe of what was right, if it is no larger than ``most`` bytes.

    Of larger outputs fingerprints are kept, piece by piece, see ``prepared.Sliced``.
    """

    most: int
    _kept: dict[Probe, list[torch.Tensor]] = field(default_factory=dict)

    def holds(self, probe: Probe, given: Sequence[torch.Tensor]) -> bool:
        """Whether these tensors are what was right at this probe."""
        return probe in self._kept and all(map(same_bytes, given, self._kept[probe]))

    def copies(self, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns copies of what is to be checked; none if it is too large."""
        if sum(tensor.nbytes for tensor in given) > self.most:
            return []
        return [tensor.clone() for tensor in given]

    def keep(self, probe: Probe, given: Sequence[torch.Tensor], copies: list[torch.Tensor]) -> None:
        """Notes what was right, if it still is what was copied before the check: a worker can write to it meanwhile."""
        if copies and all(map(same_bytes, given, copies)):
            self._kept[probe] = copies


def same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of the same shape and dtype hold the same bytes: NaN is equal to itself, 0 is not to -0.

    They may lie on different devices.
    """
    pairs = zip(_chunks(one), _chunks(other), strict=True)
    return all(torch.equal(a, b.to(a.device)) for a, b in pairs)


def _chunks(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    integers = flat.view(INTEGERS.get(tensor.itemsize, torch.uint8))
    return tuple(integers.split(CHUNK // integers.itemsize))
