"""The ceilings of a GPU that is not here, by its architecture, from its maker's data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from kernelllm_judge.timing.roofline import CONVOLUTIONS, Roofline
from pytest_kernelllm.beside.ranking.errors import RankError


@dataclass(frozen=True)
class DataSheet:
    """What a data sheet states; rates without sparsity."""

    gpu: str
    gigabytes_per_s: float
    float32: float
    """TFLOPS of float32 without tensor cores."""
    tf32: float
    """The same with tensor cores, which PyTorch uses for convolutions."""
    half: float
    """TFLOPS of float16 and bfloat16 with tensor cores."""
    cache_mb: float

    @property
    def roofline(self) -> Roofline:
        """The same in bytes and FLOPs per µs."""
        rates = {
            "float32": self.float32,
            CONVOLUTIONS: self.tf32,
            "float16": self.half,
            "bfloat16": self.half,
        }
        return Roofline(
            self.gigabytes_per_s * 1e3,
            {name: rate * 1e6 for name, rate in rates.items()},
            int(self.cache_mb * 2**20),
        )


DATA_SHEETS = {
    "sm_75": DataSheet("T4", 320, 8.1, 8.1, 65, 4),
    "sm_80": DataSheet("A100 80GB SXM", 2039, 19.5, 156, 312, 40),
    "sm_86": DataSheet("A10", 600, 31.2, 62.5, 125, 6),
    "sm_89": DataSheet("L4", 300, 30.3, 60.5, 121, 48),
    "sm_90": DataSheet("H100 SXM", 3350, 67, 494.5, 989, 50),
    "sm_100": DataSheet("B200", 8000, 75, 1125, 2250, 126),
    "sm_120": DataSheet("GeForce RTX 5090", 1792, 104.8, 104.8, 209.5, 96),
}
"""One GPU of each architecture. Others of the same architecture have other ceilings, but the ranking hardly changes."""


def data_sheet(arch: str) -> DataSheet:
    """Returns the data sheet of an architecture's GPU.

    Raises:
        RankError: there is none.
    """
    if arch not in DATA_SHEETS:
        raise RankError(f"The roofline of {arch} is not known; known are {', '.join(DATA_SHEETS)}.")
    return DATA_SHEETS[arch]
