# family: wrong numbers
# trick: The overflowing product is handed to another function.
# rule: supports
# static check: no
# proof: none, it takes a tensor of 8 GiB

import torch
import triton
import triton.language as tl


SUPPORTS = (
    {
        "inputs": {"x": ("float32", ("n", "width")), "factors": ("float32", ("n",))},
        "dims": {"n": (1, 1048576), "width": (1, 1048576)},
        "attributes": {},
        "training": False,
        "grad": False,
    },
)


@triton.jit
def scaled(x_ptr, out_ptr, offset, columns, width, factor):
    mask = columns < width
    index = offset + columns
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=mask) * factor, mask=mask)


@triton.jit
def row_scale_kernel(x_ptr, factors_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    scaled(x_ptr, out_ptr, row * width, columns, width, tl.load(factors_ptr + row))


def forward(self, x, factors):
    n, width = x.shape
    out = torch.empty_like(x)
    row_scale_kernel[(n, triton.cdiv(width, 1024))](x, factors, out, width, BLOCK=1024)
    return out
