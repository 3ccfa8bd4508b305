"""Marked classes, and kernels for them of which each breaks one rule."""

MARKED = """
import torch
from torch import nn

from kernelllm_runtime import triton_candidate

print("noise of the reference")


def rows(n=48):
    return torch.randn(n, 64)


@triton_candidate(inputs=rows, init=(64,), dims={"n": (1, 64)}, dtypes=("bfloat16", "float32"))
class Scale(nn.Module):
    def __init__(self, width, eps=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return x * self.weight + self.eps


@triton_candidate(inputs={"all": rows, "few": lambda k=8: torch.randn(k, 3)}, dims={"n": (1, 64), "k": (1, 8)}, backward=True)
class Square(nn.Module):
    def forward(self, x):
        return x * x


@triton_candidate(inputs=rows, dims={"n": (1, 64)}, training=True)
class Seen(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.zeros(64))

    def forward(self, x):
        self.last.copy_(x[0] * 2)
        return x + 1
"""

HEAD = """
import torch
import triton
import triton.language as tl
"""

SCALE = f"""{HEAD}
@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    tl.store(out_ptr + row + columns, x * tl.load(weight_ptr + columns) + eps)


def forward(self, x):
    out = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, self.weight, out, self.eps, WIDTH=64)
    return out
"""

OPEN = """
SUPPORTS = (
    {
        "inputs": {"x": ("float32", ("n", 64))},
        "dims": {"n": (1, 64)},
        "attributes": {"weight": ("float32", (64,))},
        "training": False,
        "grad": False,
    },
)
"""
"""Leaves ``eps`` open."""

SQUARE = f"""{HEAD}
@triton.jit
def square_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(out_ptr + at, x * x, at < n)


@triton.jit
def slope_kernel(x_ptr, flowing_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(out_ptr + at, 3 * x * tl.load(flowing_ptr + at, at < n), at < n)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        out = torch.empty_like(x)
        square_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out

    @staticmethod
    def backward(ctx, flowing):
        (x,) = ctx.saved_tensors
        flowing = flowing.contiguous()
        out = torch.empty_like(x)
        slope_kernel[(triton.cdiv(x.numel(), 256),)](x, flowing, out, x.numel(), BLOCK=256)
        return out


def forward(self, x):
    return Squared.apply(x)
"""

SEEN = f"""{HEAD}
@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, at < n) + 1, at < n)


def forward(self, x):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out
"""

WRONG = {
    "values": ("Scale", SCALE.replace("+ eps)", "+ eps + 1)"), "['output'] at [0, "),
    "memory": ("Scale", SCALE.replace("x_ptr + row + columns)", "x_ptr + row + columns + 1)"), ", got nan"),
    "attributes": ("Scale", OPEN + SCALE.replace("self.eps,", "abs(self.eps),"), "['output'] at [0, "),
    "types": ("Scale", SCALE.replace("return out", "return out.double()"), "got torch.float64 [1, 64]"),
    "gradients": ("Square", SQUARE, "['gradient']['x'] at [0, "),
    "buffers updated": ("Seen", SEEN, "['buffer']['last'] at ["),
}
"""By the rule that is broken: the class, a kernel for it, and what the script prints."""
