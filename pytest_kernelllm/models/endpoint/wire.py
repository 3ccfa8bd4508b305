"""What protocols have in common: the pieces of an answer, and the seed of a sample."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_kernelllm.models.protocol import Finish, Sampling


@dataclass(frozen=True)
class Piece:
    """A part of a server's answer."""

    text: str = ""
    """Text that continues the earlier pieces."""
    finish: Finish | None = None
    """Why the sample ended; None while it is incomplete."""
    tokens: int = 0
    prompt_tokens: int = 0
    reasoning: str = ""
    """What the model thinks, continuing the earlier pieces."""
    cost: float | None = None
    """US dollars, if the server states it or its prices."""
    note: str = ""
    """Why the sample is no usable answer, in one clause."""


def seed_of(sampling: Sampling, index: int) -> int:
    """Returns the seed of a sample, below 2**31."""
    digest = hashlib.sha256(f"{sampling.seed}:{index}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def number(found: Mapping[str, Any], *keys: str) -> int:
    """Returns the first of these entries that is a positive integer, or 0."""
    for key in keys:
        value = found.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0
