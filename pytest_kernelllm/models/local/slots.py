"""Stores keys and values of samples with different lengths, each in a row of fixed size."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class Slots(CacheLayerMixin):
    """One layer's keys and values, ``[rows, heads, length, width]``.

    In transformers' static cache all rows have the same position. Here each row has its own, so that the next
    sample can take over the row of a finished one.
    """

    is_compileable = True
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(
        self, like: tuple[torch.Tensor, torch.Tensor], rows: int, length: int, positions: torch.Tensor
    ) -> None:
        """Allocates the rows.

        Args:
            like: keys and values of one sample, ``[1, heads, tokens, width]``.
            rows: number of samples.
            length: number of tokens in a row.
            positions: int64 ``[rows]``, the position of each row's next token; shared with the decoder.
        """
        super().__init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        self.keys, self.values = (
            part.new_zeros((rows, part.shape[1], length, part.shape[3])) for part in like
        )
        self._positions = positions
        self._rows = torch.arange(rows, device=self.keys.device)
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Does nothing, because ``__init__`` allocates everything."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Stores one token's keys and values (``[rows, heads, 1, width]``) and returns those of all tokens."""
        positions = self._positions.to(self.keys.device)  # layers may be on several GPUs
        self.keys[self._rows, :, positions] = key_states[:, :, 0]
        self.values[self._rows, :, positions] = value_states[:, :, 0]
        return self.keys, self.values

    def fill(self, rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Copies a prompt's keys and values (``[1, heads, tokens, width]``) into rows (int64 ``[n]``)."""
        rows = rows.to(self.keys.device)
        self.keys[rows, :, : keys.shape[2]] = keys
        self.values[rows, :, : values.shape[2]] = values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Returns the length and the offset of a mask over this layer."""
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        """Returns 0: rows differ in length, so positions are always passed explicitly."""
        return 0

    def get_max_length(self) -> int:
        """Returns the number of tokens in a row."""
        return int(self.keys.shape[2])


def make_slots(prompt: Any, rows: int, length: int, positions: torch.Tensor) -> Cache:
    """Allocates a cache for ``rows`` samples of ``length`` tokens, shaped like ``prompt``, a prompt's ``DynamicCache``."""
    return Cache(
        layers=[Slots((layer.keys, layer.values), rows, length, positions) for layer in prompt.layers]
    )
