"""The ``inductor`` generator: TorchInductor's Triton, on any machine.

It needs no model and no GPU, and what it writes is real: the floor that other generators have to beat.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from pytest_kernelllm.generate.protocol import GenerateError, Generator, Request
from pytest_kernelllm.generate.render.sections import Tuning
from pytest_kernelllm.records import Completion

VERSION = 1
"""Raised whenever the same target would get another text."""


@dataclass(frozen=True)
class Variant:
    """One way to have a module compiled."""

    note: str
    tuning: Tuning = field(default_factory=Tuning)
    config: Mapping[str, Any] = field(default_factory=dict)
    """TorchInductor options."""


VARIANTS = (
    Variant("Inductor's fusion, its usual block sizes"),
    Variant("larger blocks", Tuning(pointwise=4096, pointwise_warps=8, reduction=4096, rows=4)),
    Variant("reductions not split", Tuning(reduction=4096), {"split_reductions": False}),
    Variant("looped reductions", Tuning(reduction=1024), {"triton.persistent_reductions": False}),
    Variant("fewer warps", Tuning(pointwise=512, pointwise_warps=2, reduction=1024, reduction_warps=2)),
    Variant("more warps", Tuning(pointwise=2048, pointwise_warps=8, reduction=8192, reduction_warps=16)),
    Variant(
        "looped reductions, not split",
        Tuning(reduction=2048),
        {"triton.persistent_reductions": False, "split_reductions": False},
    ),
)
"""Most promising first; those that make no difference to a target are left out."""


class InductorGenerator(Generator):
    """Writes what TorchInductor writes, in several variants (``generate.protocol.Generator``)."""

    name = "inductor"

    def identity(self) -> str:
        """Versions of everything that shapes the text; imports neither torch nor triton."""
        versions = []
        for package in ("torch", "triton"):
            try:
                versions.append(f"{package}={metadata.version(package)}")
            except metadata.PackageNotFoundError:
                versions.append(f"{package}=none")
        return f"inductor/{VERSION} {' '.join(versions)}"

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yield the completions wanted, as far as there are so many distinct ones.

        Raises:
            GenerateError: torch or triton is not installed.
        """
        try:
            from pytest_kernelllm.generate import inductor_cases
        except ImportError as error:
            raise GenerateError(
                f"The inductor generator needs torch and triton ({error}):"
                " pip install 'pytest-kernelllm[torch]'."
            ) from error
        for request in requests:
            for completion in inductor_cases.completions(request.live(), VARIANTS, request.wanted):
                yield request, completion
