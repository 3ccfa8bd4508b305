"""Products of few rows with large weights as one kernel, right in Triton's interpreter."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from loading import pinned

from kernelllm_judge.core.records import Completion
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

pytestmark = pytest.mark.slow

PROJECT = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


def few(rows=8):
    return torch.randn(2, rows, 512)


class Layers(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(512, width, bias=False) for width in widths)


@triton_candidate(inputs=few, init=(2048, 512, 512), dtypes=("bfloat16",), dims={"rows": (1, 32)})
class Together(Layers):
    def forward(self, x):
        q, k, v = (layer(x) for layer in self.layers)
        return q.sigmoid(), k + 1.0, v


@triton_candidate(inputs=few, init=(2048, 512, 512), dtypes=("bfloat16",))
class Attention(Layers):
    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (-1, 128)).transpose(1, 2) for layer in self.layers)
        return nn.functional.scaled_dot_product_attention(q.relu(), k.relu(), v, enable_gqa=True).transpose(1, 2).flatten(2)


@triton_candidate(inputs=lambda: torch.randn(5, 520), dtypes=("float16",))
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(520, 4300, bias=False)
        self.up = nn.Linear(520, 4300, bias=False)
        self.down = nn.Linear(4300, 2200, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


@triton_candidate(inputs=lambda: (torch.randn(16, 512), torch.randn(512, 4224)), dtypes=("bfloat16",))
class AsItLies(nn.Module):
    def forward(self, x, y):
        return torch.relu(x @ y)


@triton_candidate(inputs=lambda: torch.randn(1, 512), init=(1500, 1500, 1500, 1500, 1500), dtypes=("bfloat16",))
class Many(Layers):
    def forward(self, x):
        return sum(layer(x).tanh() for layer in self.layers)


@triton_candidate(inputs=lambda: torch.randn(8, 512), init=(2304, 2304), dtypes=("bfloat16",))
class Chain(nn.Module):
    def __init__(self, *widths):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(512, 2304))

    def forward(self, x):
        return torch.relu(x @ self.weight) + torch.relu(x @ (self.weight * 0.5))


@triton_candidate(inputs=few, dtypes=("bfloat16",))
class Biased(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 4608)

    def forward(self, x):
        return self.layer(x).relu()


@triton_candidate(inputs=few, init=(2048, 2304, 512), dtypes=("bfloat16",))
class Viewed(Layers):
    def forward(self, x):
        heads, turned, part = (layer(x) for layer in self.layers)
        length = x.shape[0] * x.shape[1]
        return (
            heads.view(length * 32, 64).sin(),
            turned.view(length, 2304).t().reshape(-1).exp(),
            part.view(-1).sigmoid(),
        )


@triton_candidate(inputs=few, init=(2048, 1536, 1536), dtypes=("bfloat16",))
class Returned(Layers):
    def forward(self, x):
        whole, cut, strided = (layer(x) for layer in self.layers)
        first, second = cut.chunk(2, -1)
        return whole.relu(), first, second.exp(), strided.as_strided((2, 8, 16), (1, 16, 2)).exp()


@triton_candidate(inputs=few, init=(2304, 2304), dtypes=("bfloat16",), backward=True)
class Trained(Layers):
    def forward(self, x):
        return sum(layer(x).tanh() for layer in self.layers)


@triton_candidate(inputs=few, init=(4608,))
class Wide(Layers):
    def forward(self, x):
        return torch.relu(self.layers[0](x))


@triton_candidate(inputs=lambda: torch.randn(65, 512), init=(4608,), dtypes=("bfloat16",))
class Tall(Layers):
    def forward(self, x):
        return torch.relu(self.layers[0](x))


@triton_candidate(inputs=few, init=(4608,), dtypes=("bfloat16",), dims={"rows": (1, 33)})
class PerhapsTall(Layers):
    def forward(self, x):
        return torch.relu(self.layers[0](x))


@triton_candidate(inputs=few, init=(2048,), dtypes=("bfloat16",))
class Narrow(Layers):
    def forward(self, x):
        return torch.relu(self.layers[0](x))
"""
NOTE = "products of few rows as kernels"


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, LiveTarget]:
    root = tmp_path_factory.mktemp("few_rows")
    (root / "products.py").write_text(PROJECT)
    found = scan_file(root / "products.py", root).targets
    return {target.name: pinned(root, target) for target in found}


def written(live: LiveTarget) -> list[Completion]:
    request = Request(live.target, tuple(range(40)), lambda: live)
    return [each for _, each in InductorGenerator("sm_90").generate([request]) if "few rows" in each.note]


def weights(source: str) -> list[int]:
    """How many weights each kernel with a product reads."""
    kernels = source.split("@triton.jit")[1:]
    return [1 + kernel.count("tile >=") for kernel in kernels if "tl.dot(" in kernel]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("Together", [2]),
        ("Attention", [3]),
        ("Gated", [2, 1]),
        ("AsItLies", [1]),
        ("Many", [4]),
        ("Chain", [1, 1]),
        ("Viewed", [3]),
        ("Trained", [2]),
    ],
)
def test_they_are_one_kernel_where_they_read_the_same_rows_and_are_right(
    name: str, count: list[int], targets: Mapping[str, LiveTarget], judge: Judge
) -> None:
    live = targets[name]
    completions = written(live)
    assert completions
    for completion in completions:
        candidate = render(completion, live)
        assert weights(candidate.source) == count
        verdict = judge.judge(candidate, Criteria(live, timing=False))
        assert verdict.accepted, f"{completion.note}: {verdict.reason}"


def test_what_lies_as_it_must_stays_by_itself(targets: Mapping[str, LiveTarget], judge: Judge) -> None:
    """What is returned or cut, and what is read by strides. Alone, the products have too few programs."""
    assert not written(targets["Returned"])


def test_what_they_return_is_read_where_it_lies(targets: Mapping[str, LiveTarget]) -> None:
    live = targets["Attention"]
    source = render(written(live)[0], live).source
    [call] = re.findall(r"scaled_dot_product_attention\((.*)\)", source)
    assert re.search(r"scratch\w*\.as_strided\(\(2, 4, 8, 128\), \(24576, 128, 3072, 1\), 2560\)", call), call


@pytest.mark.parametrize("name", ["Wide", "Tall", "PerhapsTall", "Narrow", "Biased"])
def test_the_library_keeps_others(name: str, targets: Mapping[str, LiveTarget]) -> None:
    """In float32, with a bias, of perhaps more rows, and with too few columns to keep a GPU busy."""
    assert not written(targets[name])
