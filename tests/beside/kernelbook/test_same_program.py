"""Which texts are one program, and that KernelBench's problems are known."""

import pytest

from pytest_kernelllm.beside.kernelbook.same_program import known_problems, same_program

ORIGINAL = '''
import torch
import torch.nn as nn
import torch.nn.functional as F

EPS = 1e-5
batch_size = 16


class Model(nn.Module):
    """Normalises."""

    def __init__(self, width: int, bias=True):
        super(Model, self).__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.linear = nn.Linear(width, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # in float32
        y = F.relu(self.linear(x))
        return y * self.weight + EPS


def get_inputs():
    return [torch.rand(batch_size, 64)]


def get_init_inputs():
    return [64]
'''

COPY = """
from pytest_kernelllm import triton_candidate
from torch import ones
from torch.nn import Linear, Module, Parameter, functional


def unused():
    pass

SMALL = 1e-5


@triton_candidate(inputs=lambda: torch.rand(2, 8), init=(8,))
class Block(Module):
    def __init__(self, size, with_bias=True):
        super().__init__()
        self.gain = Parameter(ones(size))
        self.proj = Linear(size, size, bias=with_bias)
    def forward(self, hidden):
        out = functional.relu(self.proj(hidden))
        return out * self.gain + SMALL
"""


def test_names_layout_comments_imports_and_sizes_do_not_matter():
    assert same_program(ORIGINAL) == same_program(COPY, "Block") is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("F.relu", "F.silu"),
        ("1e-5", "1e-6"),
        ("bias=True", "bias=False"),
        ("torch.ones", "torch.zeros"),
        ("y * self.weight", "x * self.weight"),
    ],
)
def test_another_computation_is_another_program(old, new):
    assert old in ORIGINAL
    assert same_program(ORIGINAL.replace(old, new)) != same_program(ORIGINAL)


def test_no_text_breaks_it():
    for text in ("", "class Model(", "x = 1", "class Other: ...", "class Model:\n" + " pass\n" * 3, "\0"):
        assert same_program(text) is None or "class Model" in text


def test_kernelbenchs_problems_are_listed():
    problems = known_problems()
    assert len(problems) > 200 and "level3/1_MLP.py" in problems.values()
    conv = """
import torch

class Fused(torch.nn.Module):
    def __init__(self, a, b, c, shape):
        super().__init__()
        self.c = torch.nn.Conv2d(a, b, c)
        self.shift = torch.nn.Parameter(torch.randn(shape))

    def forward(self, image):
        image = self.c(image)
        image = torch.relu(image)
        image = image + self.shift
        return image
"""
    assert problems[same_program(conv, "Fused")] == "level2/1_Conv2D_ReLU_BiasAdd.py"
