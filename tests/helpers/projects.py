"""A small project with one target and candidates of every kind, for tests of the whole loop."""

import sys

COMMAND = (sys.executable, "-m", "pytest_kernelllm.cli")
"""``kernelllm``, also where its environment is not active."""

LAYERS = '''
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


def rows(n=6):
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, init=(64,), dims={"n": (1, 64)})
class Scale(nn.Module):
    """Multiply by a learned weight, add one."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.weight + 1
'''

GOOD = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    tl.store(out_ptr + row + columns, x * tl.load(weight_ptr + columns) + 1)


def forward(self, x):
    out = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=64)
    return out
"""

PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * self.weight + 1


def get_inputs():
    return [torch.randn(6, 64)]


def get_init_inputs():
    return [64]
"""
"""The target of ``LAYERS`` in KernelBench's form."""

ANSWER = (
    GOOD.split("def forward")[0]
    + """
class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        out = torch.empty_like(x)
        scale_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=64)
        return out
"""
)
"""A right one to ``PROBLEM``."""

CANDIDATES = {
    "Scale_0.py": GOOD,
    "Scale_1.py": GOOD.replace("+ 1)", "+ 2)"),
    "Scale_2.py": GOOD.replace("out_ptr + row + columns,", "out_ptr + row + columns + (1 << 40),"),
    "Scale_3.py": GOOD.replace("    return out", "    while True:\n        pass"),
    "Scale_4.py": GOOD.replace("import torch\n", "import os\nimport torch\n").replace(
        "    return out", "    os._exit(0)"
    ),
}
"""Right, wrong, crashing, hanging, and leaving with status 0."""


def lay_out(path, candidates=CANDIDATES):
    """Write the project into ``path``."""
    (path / "layers.py").write_text(LAYERS)
    folder = path / "candidates"
    folder.mkdir()
    for name, text in candidates.items():
        (folder / name).write_text(text)
