"""What an adopted class costs at every call, beside what it runs: the decision, in µs.

    python benchmarks/dispatch.py [--calls 20000]

Runs on the CPU, with ``KERNELLLM_INTERPRET`` set so that CPU tensors are inside the domain; launches no
kernel.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.update(KERNELLLM_INTERPRET="1", TRITON_INTERPRET="1")

import torch
from torch import nn

from pytest_kernelllm import triton_candidate
from pytest_kernelllm.kernel_module import Provenance, compose
from pytest_kernelllm.records import Domain, TensorSpec

BODY = "def forward(self, x):\n    return x\n"


def domain(module: nn.Module, columns: int) -> Domain:
    """The domain of a module with one input of shape (rows, columns)."""
    attributes = {
        name: TensorSpec("float32", tuple(tensor.shape)) for name, tensor in module.named_parameters()
    }
    for name, child in module.named_modules():
        dot = f"{name}." if name else ""
        if name:
            attributes[f"{dot}__class__"] = f"{type(child).__module__}.{type(child).__qualname__}"
        scalars = {k: v for k, v in vars(child).items() if k[0] != "_" and k != "training"}
        attributes |= {
            dot + k: v for k, v in scalars.items() if isinstance(v, bool | int | float | str | None)
        }
    return Domain({"x": TensorSpec("float32", ("rows", columns))}, attributes, {"rows": (1, 4096)})


def microseconds(call: Callable[[], object], calls: int) -> float:
    """Time of one call: the best of 9 runs, for the machine may have other things to do."""
    runs = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        runs.append((time.perf_counter() - start) / calls * 1e6)
    return min(runs)


class RMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class GatedMLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(64, 64, bias=False) for _ in range(3))
        self.act = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=20_000)
    calls = parser.parse_args().calls
    torch.set_num_threads(1)
    x, wide = torch.randn(8, 64), torch.randn(8, 65)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        sys.path.insert(0, folder)
        print(f"{'µs a call':<12}{'inside':>10}{'outside':>10}{'first time':>12}")
        for cls in (RMSNorm, GatedMLP):
            name = f"kernel_{cls.__name__.lower()}"
            text = compose(Provenance(cls.__name__, "0", "files"), "x", [domain(cls(), 64)], BODY)
            (Path(folder) / f"{name}.py").write_text(text.replace("# source hash: 0\n", ""))
            triton_candidate(cls, kernel=name)
            choose = cls.forward.__kernelllm_dispatcher__.choose
            module = cls().eval()
            assert choose(module, (x,), {}) is not None, "the call is outside the domain"
            assert choose(module, (wide,), {}) is None
            inside = microseconds(lambda m=module, c=choose: c(m, (x,), {}), calls)
            outside = microseconds(lambda m=module, c=choose: c(m, (wide,), {}), calls)
            fresh = iter([cls().eval() for _ in range(9 * 20)])
            first = microseconds(lambda f=fresh, c=choose: c(next(f), (x,), {}), 20)
            print(f"{cls.__name__:<12}{inside:>10.2f}{outside:>10.2f}{first:>12.1f}")


if __name__ == "__main__":
    main()
