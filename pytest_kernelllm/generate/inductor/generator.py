"""The ``inductor`` generator, which takes Triton code from TorchInductor on any machine.

It needs no model and no GPU, and gives a baseline for the other generators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from kernelllm_judge.core.records import Completion
from kernelllm_judge.render.version import code_version, render_version
from pytest_kernelllm.generate.inductor.device import gpu_for
from pytest_kernelllm.generate.inductor.variants import VARIANTS
from pytest_kernelllm.generate.protocol import GenerateError, Generator, Request


class InductorGenerator(Generator):
    """Returns TorchInductor's code in several variants (``generate.protocol.Generator``)."""

    name = "inductor"

    def __init__(self, arch: str = "sm_90") -> None:
        """``arch``: the GPU architecture that the kernels are for."""
        self.gpu = gpu_for(arch)

    def identity(self) -> str:
        """Returns the architecture and the versions that determine the text, without importing torch or triton.

        This package's and the renderer's are the hash of their own text. Variants that are rendered alike count as one.
        """
        versions = []
        for package in ("torch", "triton"):
            try:
                versions.append(f"{package}={metadata.version(package)}")
            except metadata.PackageNotFoundError:
                versions.append(f"{package}=none")
        own = code_version(Path(__file__).parent)
        return f"inductor/{own} sm_{self.gpu.capability} render={render_version()} {' '.join(versions)}"

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yields the requested completions, as far as there are so many distinct ones."""
        try:
            from pytest_kernelllm.generate.inductor import cases
        except ImportError as error:
            raise GenerateError(
                f"The inductor generator needs torch and triton ({error}):"
                " pip install 'pytest-kernelllm[torch]'."
            ) from error
        for request in requests:
            for completion in cases.completions(request.live(), self.gpu, VARIANTS, request.indices):
                yield request, completion
