"""Says which modules a verified kernel covers already."""

from __future__ import annotations

from torch import nn

from kernelllm_judge.core.records import Environment, Ratio
from kernelllm_judge.environment import find_environment
from kernelllm_runtime.adopted import DISPATCHER
from pytest_kernelllm.beside.optimize.environment import environment_of
from pytest_kernelllm.beside.optimize.kernel_index import KernelIndex, NoKernel
from pytest_kernelllm.beside.optimize.model import Replacement
from pytest_kernelllm.beside.optimize.report import UNKNOWN
from pytest_kernelllm.store import Store


class Covered:
    """Looks modules up in a store, for the GPU of the model, or without one for verdicts of Triton's interpreter."""

    def __init__(self, store: Store, model: nn.Module, arch: str) -> None:
        """``arch`` is the architecture without a GPU."""
        environment: Environment = environment_of(model) or find_environment("cpu", arch)
        self._kernels = Replacement(KernelIndex(store, environment))

    def find(self, module: nn.Module) -> tuple[str, Ratio | None, str]:
        """Returns the verified kernel that would run in a module, its measured speedup over eager, and why none counts.

        The kernel is named by the first 12 digits of its hash, or by its dotted name if it is adopted. Without any kernel for
        its class in the store, the reason is empty as well.
        """
        adopted = getattr(type(module).forward, DISPATCHER, None)
        if adopted:
            return adopted.kernel.dotted, None, ""
        try:
            record, kernel = self._kernels.choose(module)
        except NoKernel as none:
            return "", None, "" if str(none) == UNKNOWN else str(none)
        return kernel.dotted, record.verdict.speedup, ""
