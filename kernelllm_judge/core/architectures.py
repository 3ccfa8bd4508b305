"""Names the GPU architectures that kernels can be compiled for, and says how far each is supported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tier = Literal[1, 2, None]


@dataclass(frozen=True)
class Architecture:
    """A GPU architecture, as Triton and people name it."""

    name: str
    """``sm_90`` or ``gfx942``."""
    tier: Tier = None
    """1: our tests compile for it in every run; 2: the same, with less around it; None: Triton knows it, nothing here tests it."""
    hardware: str = ""
    """The GPU that ``benchmarks/RESULTS.md`` records runs on; empty: none of this architecture."""

    @property
    def backend(self) -> Literal["cuda", "hip"]:
        """The name of Triton's backend."""
        return "cuda" if self.name.startswith("sm_") else "hip"

    @property
    def number(self) -> int | str:
        """What Triton's backend calls it: 90 for ``sm_90``."""
        return int(self.name.removeprefix("sm_")) if self.backend == "cuda" else self.name

    @property
    def warp_size(self) -> int:
        """Lanes of a warp; a wavefront of AMD's data centre GPUs has more."""
        return 64 if self.name.startswith("gfx9") else 32

    @property
    def support(self) -> str:
        """How far it is supported, as people read it."""
        if self.tier is None:
            return "no tier: Triton can compile for it, no test does"
        ran = f"run on an {self.hardware}" if self.hardware else "not run on hardware"
        return f"tier {self.tier}: tests compile for it; {ran}"


ARCHITECTURES = {
    each.name: each
    for each in (
        Architecture("sm_75"),
        Architecture("sm_80", 1),
        *map(Architecture, ("sm_86", "sm_87", "sm_88", "sm_89")),
        Architecture("sm_90", 1, "H200"),
        Architecture("sm_100", 1),
        *map(Architecture, ("sm_101", "sm_103", "sm_110")),
        Architecture("sm_120", 1),
        Architecture("sm_121"),
        Architecture("gfx942", 2),
    )
}
"""By their names. Triton's own wheel has no backend for Intel's GPUs, so none of them is here."""


def architecture(name: str) -> Architecture:
    """Returns the architecture of a name; of one that a driver reports and that is not listed, one without a tier.

    Args:
        name: such as ``sm_90``, or ``sm_90a`` as a compiler names it.
    """
    plain = name.rstrip("af") if name.startswith("sm_") else name
    return ARCHITECTURES.get(plain) or Architecture(plain)
