"""Reads tiles of memory: rows, columns and blocks at regular distances, of which an array's view is copied at once.

Triton's interpreter follows one address after the other, which takes most of the time of a product whose factor lies
across memory: each element comes from another line of the cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from triton._C.libtriton import interpreter as memory

LEAST = 1 << 10
"""Elements from which on it pays to look for a tile."""


@dataclass(frozen=True)
class _View:
    """Describes memory to numpy, see its array interface."""

    __array_interface__: dict[str, Any]


def read(addresses: np.ndarray, chosen: np.ndarray, rest: np.ndarray, kind: np.dtype[Any]) -> np.ndarray:
    """Returns the elements at addresses, and those of ``rest`` that are not ``chosen``; arrays have one shape.

    The memory of what is returned may be in another order than C's: a tile is copied as it lies.
    """
    if addresses.size >= LEAST and chosen.all():
        tile = _tile(addresses, kind)
        if tile is not None:
            return tile
    found: np.ndarray = memory.load(addresses, chosen, rest, kind)
    return found


def _tile(addresses: np.ndarray, kind: np.dtype[Any]) -> np.ndarray | None:
    """Returns the elements if addresses are sums of one number for each axis, which is a multiple of its place but on one axis."""
    first = addresses.flat[0]
    lines, total = [], first
    for axis, length in enumerate(addresses.shape):
        line = addresses[tuple(slice(None) if each == axis else 0 for each in range(addresses.ndim))] - first
        lines.append(line.view(np.int64))
        if length > 1:
            total = total + line.reshape([length if each == axis else 1 for each in range(addresses.ndim)])
    if not (addresses == total).all():
        return None
    steps = [int(line[1]) if len(line) > 1 else 0 for line in lines]
    uneven = [
        axis
        for axis, (line, step) in enumerate(zip(lines, steps, strict=True))
        if len(line) > 2 and (line[1:] - line[:-1] != step).any()
    ]
    if not uneven:
        return _at(int(first), addresses.shape, steps, kind).copy(order="K")
    if len(uneven) > 1 or (lines[uneven[0]] % kind.itemsize).any():
        return None
    [axis] = uneven
    line = lines[axis] // kind.itemsize
    least = int(line.min())
    shape = [int(line.max()) - least + 1 if each == axis else n for each, n in enumerate(addresses.shape)]
    steps[axis] = kind.itemsize
    view = _at(int(first) + least * kind.itemsize, shape, steps, kind)
    rows: np.ndarray = np.moveaxis(view, axis, 0)[line - least]
    return np.moveaxis(rows, 0, axis)


def _at(start: int, shape: Any, steps: Any, kind: np.dtype[Any]) -> np.ndarray:
    """Returns a view of memory."""
    return np.asarray(
        _View(
            {
                "version": 3,
                "data": (start, True),
                "shape": tuple(shape),
                "strides": tuple(steps),
                "typestr": kind.str,
            }
        )
    )
