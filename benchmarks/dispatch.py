"""What an adopted class costs at every call: the decision whether its kernel runs, in µs beside a plain module's call.

On the CPU, with ``KERNELLLM_INTERPRET`` so that CPU tensors are inside the domain. The kernels return their input, so that what
is left is Python. Figures are the best of rounds that time each way once.

    python -m benchmarks dispatch [--calls 5000] [--rounds 30]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.update(KERNELLLM_INTERPRET="1", TRITON_INTERPRET="1")

import torch
from torch import nn

from benchmarks.rows import Row, interleaved, less
from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.target.attributes import attributes
from kernelllm_runtime import triton_candidate

BODY = "def forward(self, x):\n    return x\n"


class RMSNorm(nn.Module):
    """One parameter, one number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Block(nn.Module):
    """Two norms, seven linear layers, an activation."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after, self.act = nn.LayerNorm(64), nn.LayerNorm(64), nn.SiLU()
        self.q, self.k, self.v, self.o, self.gate, self.up, self.down = (nn.Linear(64, 64) for _ in range(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=30)


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields the calls inside and outside the domain of each class, and the first call of an instance."""
    torch.set_num_threads(1)
    x, wide = torch.randn(8, 64), torch.randn(8, 65)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        sys.path.insert(0, folder)
        for cls in (RMSNorm, Block):
            plain, made = cls().eval(), _adopted(cls, Path(folder))
            module = made().eval()
            ways: dict[str, Callable[[], object]] = {
                "plain": lambda plain=plain: plain(x),
                "inside": lambda module=module: module(x),
                "outside": lambda module=module: module(wide),
            }
            best = _best(ways, options.calls, options.rounds)
            for where in ("inside", "outside"):
                added = best[where] - best["plain"]
                yield less(
                    f"{cls.__name__}, a call {where} the domain",
                    "the module without a kernel",
                    best["plain"],
                    best[where],
                    "µs",
                    f"{added:.2f} µs added",
                )
            yield Row(f"{cls.__name__}, the first call of an instance", "", None, _first_call(made), "µs")


def _adopted(cls: type[nn.Module], folder: Path) -> type[nn.Module]:
    """Returns a subclass that has adopted a kernel which returns its input."""
    domain = Domain(
        {"x": TensorSpec("float32", ("rows", 64))}, attributes(cls().eval(), None), {"rows": (1, 4096)}
    )
    name = f"kernel_{cls.__name__.lower()}"
    text = compose(Provenance(cls.__name__, "0", "files"), "x", [domain], BODY)
    (folder / f"{name}.py").write_text(text.replace("# source hash: 0\n", ""))
    return triton_candidate(type(cls.__name__, (cls,), {}), kernel=name)


def _best(ways: dict[str, Callable[[], object]], calls: int, rounds: int) -> dict[str, float]:
    """µs a call of each way."""
    best = dict.fromkeys(ways, float("inf"))
    for name in interleaved(ways, rounds):
        call, begun = ways[name], time.perf_counter()
        for _ in range(calls):
            call()
        best[name] = min(best[name], (time.perf_counter() - begun) / calls * 1e6)
    return best


def _first_call(cls: type[nn.Module]) -> float:
    x, times = torch.randn(8, 64), []
    for module in [cls().eval() for _ in range(50)]:
        begun = time.perf_counter()
        module(x)
        times.append((time.perf_counter() - begun) * 1e6)
    return min(times)
