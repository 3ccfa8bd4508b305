# style: A guarded import of what older versions lack, a pass, asserts, an f-string.

import torch
import triton
import triton.language as tl

try:
    import math
except ImportError:
    math = None

if math is None:
    raise ImportError("math is missing")


@triton.jit
def scale_shift_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask)
    y = x * tl.load(weight_ptr + columns, mask=mask) + tl.load(bias_ptr + columns, mask=mask)
    tl.store(out_ptr + row * width + columns, y, mask=mask)


class Shape:
    """Holds nothing."""

    pass


def forward(self, x):
    assert x.ndim == 2, f"expected two dimensions, got {x.ndim}"
    width = x.shape[-1]
    if width != self.weight.numel():
        raise ValueError(f"x has {width} columns, the weight {self.weight.numel()}")
    block = 2 ** math.ceil(math.log2(width))
    out = torch.empty_like(x)
    scale_shift_kernel[(x.shape[0],)](x, self.weight, self.bias, out, width, BLOCK=block, num_warps=2)
    return out
