"""Keys and values of samples that are at different places in their texts: a row of fixed memory for each."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin


class Slots(CacheLayerMixin):
    """One layer's keys and values, ``[rows, heads, length, width]``.

    transformers' static cache moves all rows on together. Here each row has its own position, so that a finished
    sample's row can be given to the next one.
    """

    is_compileable = True
    keys: torch.Tensor
    values: torch.Tensor

    def __init__(
        self, like: tuple[torch.Tensor, torch.Tensor], rows: int, length: int, positions: torch.Tensor
    ) -> None:
        """``like``: keys and values of one sample; ``positions``: int64 ``[rows]``, where the next token of each row goes."""
        super().__init__()  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        self.keys, self.values = (
            part.new_zeros((rows, part.shape[1], length, part.shape[3])) for part in like
        )
        self._positions = positions
        self._rows = torch.arange(rows, device=self.keys.device)
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing is left to do."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Put one token's keys and values (``[rows, heads, 1, width]``) in their places; returns all there is."""
        positions = self._positions.to(self.keys.device)  # layers may lie on several GPUs
        if self.keys.is_cuda:
            from pytest_kernelllm.models.local.step_kernels import store

            with torch.cuda.device_of(self.keys):  # Triton launches on the current one
                store(key_states, value_states, self.keys, self.values, positions)
            return self.keys, self.values
        self.keys[self._rows, :, positions] = key_states[:, :, 0]
        self.values[self._rows, :, positions] = value_states[:, :, 0]
        return self.keys, self.values

    def fill(self, rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Give rows (int64 ``[n]``) a prompt's keys and values, ``[1, heads, tokens, width]``."""
        rows = rows.to(self.keys.device)
        self.keys[rows, :, : keys.shape[2]] = keys
        self.values[rows, :, : values.shape[2]] = values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset that a mask over this layer has."""
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        """Rows differ, so positions are always given explicitly."""
        return 0

    def get_max_length(self) -> int:
        """Tokens that a row holds."""
        return int(self.keys.shape[2])


def make_slots(prompt: Any, rows: int, length: int, positions: torch.Tensor) -> Cache:
    """Room for ``rows`` samples of ``length`` tokens, shaped like ``prompt``, the ``DynamicCache`` of one prompt."""
    return Cache(
        layers=[Slots((layer.keys, layer.values), rows, length, positions) for layer in prompt.layers]
    )
