# style: Written for one batch size, and its SUPPORTS says so.

import torch
import triton
import triton.language as tl

SUPPORTS = (
    {
        "inputs": {"x": ("float32", ("n", 96))},
        "dims": {"n": (6, 6)},
        "attributes": {"weight": ("float32", (96,)), "bias": ("float32", (96,))},
        "training": False,
        "grad": False,
    },
)


@triton.jit
def scale_shift_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, TOTAL: tl.constexpr, WIDTH: tl.constexpr):
    index = tl.arange(0, 1024)
    mask = index < TOTAL
    x = tl.load(x_ptr + index, mask=mask)
    weight = tl.load(weight_ptr + index % WIDTH, mask=mask)
    bias = tl.load(bias_ptr + index % WIDTH, mask=mask)
    tl.store(out_ptr + index, x * weight + bias, mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    scale_shift_kernel[(1,)](x, self.weight, self.bias, out, TOTAL=576, WIDTH=96)
    return out
