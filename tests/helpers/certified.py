"""Certifies the addresses of small kernel modules: without probes, in a worker that compiles."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch

from kernelllm_judge.addresses.certify import Certifier
from kernelllm_judge.core.records import Case, Certificate, Domain, TensorSpec
from kernelllm_judge.findings import Findings
from kernelllm_judge.isolation.isolation import probe_isolation
from kernelllm_judge.plans import Plan
from kernelllm_judge.supervisor import ForkServer
from kernelllm_judge.workers import Workers

HEADER = """
import torch
import triton
import triton.language as tl

"""
F32 = "float32"


@dataclass(frozen=True)
class Kernel:
    """A kernel module without ``SUPPORTS``, and what calls it."""

    source: str
    inputs: dict[str, TensorSpec]
    dims: dict[str, tuple[int, int]]
    sizes: dict[str, int]
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)
    grad: bool = False

    def but(self, right: str, wrong: str) -> Kernel:
        """Returns it with other text somewhere, such as a mistake."""
        assert right in self.source
        return replace(self, source=self.source.replace(right, wrong, 1))

    def at(self, **sizes: int) -> Kernel:
        """Returns it where these dimensions have these sizes, and no others."""
        fixed = {name: (size, size) for name, size in sizes.items()}
        return replace(self, dims={**self.dims, **fixed}, sizes={**self.sizes, **sizes})

    def plan(self) -> Plan:
        """Returns what is judged."""
        domain = Domain(self.inputs, {}, self.dims, grad=self.grad)
        return Plan(Case("default", F32, domain, self.sizes), (), (), self.dims, self.sizes)

    def module(self) -> torch.nn.Module:
        """Returns a module with its weights, without values."""
        module = torch.nn.Module()
        for name, shape in self.weights.items():
            module.register_parameter(name, torch.nn.Parameter(torch.empty(shape)))
        return module


@contextlib.contextmanager
def certifying() -> Iterator[Callable[[Kernel], Certificate]]:
    """Yields a function that certifies a kernel, or raises ``Decision``."""
    server = ForkServer("compile", probe_isolation("cpu"), "sm_90")
    workers = Workers(server, torch.device("cpu"), 60.0)

    def certify(kernel: Kernel) -> Certificate:
        findings = Findings({"addresses": "correctness"})
        with workers.loaded(HEADER + kernel.source, None, findings) as judging:  # type: ignore[arg-type]
            certifier = Certifier(judging.worker, findings, 0)
            certifier.add(kernel.plan(), kernel.module())
        return certifier.certificate()

    try:
        yield certify
    finally:
        server.close()
