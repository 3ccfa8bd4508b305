"""What an adopted class costs at every call, beside what it runs: the decision, in µs.

    python benchmarks/dispatch.py [--calls 5000] [--rounds 40]

Runs on the CPU, with ``KERNELLLM_INTERPRET`` set so that CPU tensors are inside the domain. The kernels here
launch nothing: they return their input, so that what is left is Python. Every round times each way of calling
once, one after the other, so that all meet the same machine.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.update(KERNELLLM_INTERPRET="1", TRITON_INTERPRET="1")

import torch
from torch import nn

from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.target.attributes import attributes
from pytest_kernelllm import triton_candidate

BODY = "def forward(self, x):\n    return x\n"


class Activation(nn.Module):
    """No parameters."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class RMSNorm(nn.Module):
    """One parameter, one number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class GroupNorm(nn.GroupNorm):
    """Two parameters, four plain attributes."""

    def __init__(self) -> None:
        super().__init__(8, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class GatedMLP(nn.Module):
    """Three linear layers and an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(64, 64, bias=False) for _ in range(3))
        self.act = nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Block(nn.Module):
    """Two norms, four linear layers with bias, a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(64), nn.LayerNorm(64)
        self.q, self.k, self.v, self.o = (nn.Linear(64, 64) for _ in range(4))
        self.mlp = GatedMLP()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def adopted(cls: type[nn.Module], folder: Path) -> type[nn.Module]:
    """A subclass that has adopted a kernel which returns its input."""
    domain = Domain(
        {"x": TensorSpec("float32", ("rows", 64))}, attributes(cls().eval(), None), {"rows": (1, 4096)}
    )
    name = f"kernel_{cls.__name__.lower()}"
    text = compose(Provenance(cls.__name__, "0", "files"), "x", [domain], BODY)
    (folder / f"{name}.py").write_text(text.replace("# source hash: 0\n", ""))
    made = type(cls.__name__, (cls,), {})
    return triton_candidate(made, kernel=name)


def timed(ways: dict[str, Callable[[], object]], calls: int, rounds: int) -> dict[str, list[float]]:
    """µs a call of each way, one number a round."""
    runs: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, call in ways.items():
            start = time.perf_counter()
            for _ in range(calls):
                call()
            runs[name].append((time.perf_counter() - start) / calls * 1e6)
    return runs


def measure(plain: nn.Module, module: nn.Module, calls: int, rounds: int) -> str:
    """One line of the table."""
    x, y, wide = torch.randn(8, 64), torch.randn(9, 64), torch.randn(8, 65)
    dispatcher = type(module).forward.__kernelllm_dispatcher__
    assert dispatcher.reason(module, (x,), {}) is None, dispatcher.reason(module, (x,), {})
    assert dispatcher.reason(module, (wide,), {}) is not None
    module(x)
    kernel, forward, other = dispatcher.kernel.forward, type(module).forward, type(module)().eval()
    runs = timed(
        {
            "nothing": lambda: None,
            "kernel": lambda: kernel(module, x),
            "same": lambda: forward(module, x),
            "outside": lambda: forward(other, wide),
            "plain call": lambda: plain(x),
            "call": lambda: module(x),
        },
        calls,
        rounds,
    )
    runs |= timed({"two forms": lambda: (forward(module, x), forward(module, y))}, calls // 5, rounds)
    best = {name: min(times) for name, times in runs.items()}
    middle = {name: statistics.median(times) for name, times in runs.items()}
    direct = best["kernel"] - best["nothing"]
    figures = (
        f"{direct:.2f}",
        f"{best['same'] - best['kernel']:.2f} / {middle['same'] - middle['kernel']:.2f}",
        f"{best['outside'] - best['kernel']:.2f} / {middle['outside'] - middle['kernel']:.2f}",
        f"{best['two forms'] / 2 - direct:.2f} / {middle['two forms'] / 2 - direct:.2f}",
        f"{best['plain call'] - best['nothing']:.2f}",
        f"{(best['call'] - best['nothing']) / (best['plain call'] - best['nothing']):.2f}",
    )
    return f"{type(module).__name__:<12}" + "".join(f"{figure:>15}" for figure in figures)


def first_call(cls: type[nn.Module]) -> float:
    """µs of the first call of an instance, when its class has been called before: the best of 50."""
    x, times = torch.randn(8, 64), []
    for module in [cls().eval() for _ in range(50)]:
        start = time.perf_counter()
        module(x)
        times.append((time.perf_counter() - start) * 1e6)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=40)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"Python {platform.python_version()}, torch {torch.__version__}; µs a call, best / median")
    heads = (
        "kernel",
        "adopted: +",
        "outside: +",
        "two forms: +",
        "plain module",
        "ratio to it",
        "first call",
    )
    print(f"{'':<12}" + "".join(f"{head:>15}" for head in heads))
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        sys.path.insert(0, folder)
        for cls in (Activation, RMSNorm, GroupNorm, GatedMLP, Block):
            made = adopted(cls, Path(folder))
            line = measure(cls().eval(), made().eval(), given.calls, given.rounds)
            print(f"{line}{first_call(made):>15.0f}", flush=True)


if __name__ == "__main__":
    main()
