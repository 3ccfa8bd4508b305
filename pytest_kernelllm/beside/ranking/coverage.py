"""Says which modules a verified kernel covers already."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from kernelllm_judge.core.records import Environment, Ratio
from kernelllm_judge.environment import find_environment
from kernelllm_runtime.adopted import DISPATCHER
from pytest_kernelllm.beside.optimize.environment import environment_of
from pytest_kernelllm.beside.optimize.kernel_index import KernelIndex, NoKernel
from pytest_kernelllm.beside.optimize.model import Replacement
from pytest_kernelllm.beside.optimize.report import UNKNOWN
from pytest_kernelllm.store import Store


@dataclass(frozen=True)
class Coverage:
    """What the store has for a module. At most one of ``kernel`` and ``reason`` is not empty."""

    kernel: str = ""
    """The verified kernel that would run: first 12 digits of its hash, or its dotted name if it is adopted."""
    gain: Ratio | None = None
    """Its measured speedup over eager at the marker's sizes."""
    reason: str = ""
    """Why the store's kernels for its class do not count; empty if it has none."""


class Covered:
    """Looks modules up in a store, for the GPU of the model, or without one for verdicts of Triton's interpreter."""

    def __init__(self, store: Store, model: nn.Module, arch: str) -> None:
        """``arch`` is the architecture without a GPU."""
        environment: Environment = environment_of(model) or find_environment("cpu", arch)
        self._kernels = Replacement(KernelIndex(store, environment))

    def find(self, module: nn.Module) -> Coverage:
        """Returns what the store has for a module."""
        adopted = getattr(type(module).forward, DISPATCHER, None)
        if adopted:
            return Coverage(adopted.kernel.dotted)
        try:
            record, kernel = self._kernels.choose(module)
        except NoKernel as none:
            return Coverage(reason="" if str(none) == UNKNOWN else str(none))
        return Coverage(kernel.dotted, record.verdict.speedup)
