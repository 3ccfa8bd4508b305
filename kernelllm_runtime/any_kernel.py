"""What the dispatch needs of a kernel, wherever it comes from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from kernelllm_runtime.targets import Domain

AGAIN = "run pytest --kernelllm for a new one"


class Unavailable(Exception):
    """Raised if a class's kernel cannot be used at all; the text completes "because …"."""

    def __init__(self, reason: str, advice: str = "") -> None:
        """``advice`` states what to do; without one there is no warning."""
        super().__init__(reason)
        self.advice = advice


def refuse_if_disabled() -> None:
    """Refuses to read kernels if only originals should run.

    Raises:
        Unavailable: ``KERNELLLM_DISABLE`` is set.
    """
    if os.environ.get("KERNELLLM_DISABLE", "") not in ("", "0"):
        raise Unavailable("KERNELLLM_DISABLE is set")


class AnyKernel(Protocol):
    """A kernel for one class. Its properties raise ``Unavailable``."""

    dotted: str
    """Its name, for people."""

    @property
    def domains(self) -> tuple[Domain, ...]:
        """The domains that it was verified on."""

    @property
    def forward(self) -> Callable[..., Any]:
        """What runs in place of the original."""
