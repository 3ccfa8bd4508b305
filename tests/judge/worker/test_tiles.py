"""Tiles of memory are what Triton's interpreter finds there, address by address."""

import numpy as np
import pytest
from triton._C.libtriton import interpreter as memory

from kernelllm_judge.worker import tiles

HELD = np.arange(1 << 16, dtype=np.float32)
ROWS, COLUMNS = np.arange(32)[:, None], np.arange(64)


@pytest.mark.parametrize(
    ("places", "is_tile"),
    [
        (np.arange(2048)[None], True),
        ((9 + 64 * ROWS + COLUMNS)[None], True),
        ((512 * COLUMNS + ROWS)[None], True),  # across memory
        ((9 + 64 * (ROWS % 5) + COLUMNS)[None], True),
        ((5000 - 64 * ROWS + COLUMNS)[None], True),
        ((64 * ((ROWS + 7) % 32) + 0 * COLUMNS)[None], True),
        (3 + 128 * np.array([4, 0, 9])[:, None, None] + 2048 * ROWS + COLUMNS, True),
        ((512 * (COLUMNS % 7) + ROWS % 5)[None], False),
        ((64 * ROWS + COLUMNS + ROWS * COLUMNS)[None], False),
        (np.random.default_rng(0).permutation(2048)[None], True),  # uneven, but along one axis
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.int64])
def test_a_tile_is_what_lies_at_its_addresses(places, is_tile, dtype):
    held = HELD.astype(dtype)
    addresses = (held.ctypes.data + held.itemsize * places).astype(np.uint64)
    every, rest = np.ones(places.shape, bool), np.zeros(places.shape, dtype)
    found = tiles.read(addresses, every, rest, held.dtype)
    assert (found == memory.load(addresses, every, rest, held.dtype)).all()
    assert (tiles._tile(addresses, held.dtype) is not None) is is_tile


def test_what_is_left_out_is_not_read():
    addresses = (HELD.ctypes.data + 4 * np.arange(2048)[None]).astype(np.uint64)
    addresses[0, -1] = 0
    chosen = addresses > 0
    found = tiles.read(addresses, chosen, np.full(addresses.shape, 7, np.float32), HELD.dtype)
    assert (found[0, :-1] == HELD[:2047]).all()
    assert found[0, -1] == 7
