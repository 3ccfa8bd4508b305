# family: wrong numbers
# trick: Offsets are cast to 64 bits after they overflowed.
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
def row_scale_kernel(x_ptr, factors_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = columns < width
    index = (row * width + columns).to(tl.int64)
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=mask) * tl.load(factors_ptr + row), mask=mask)


def forward(self, x, factors):
    n, width = x.shape
    out = torch.empty_like(x)
    row_scale_kernel[(n, triton.cdiv(width, 1024))](x, factors, out, width, BLOCK=1024)
    return out
