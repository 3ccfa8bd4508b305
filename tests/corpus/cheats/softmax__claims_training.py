# family: the file itself
# trick: SUPPORTS claims train mode, in which it was never judged.
# rule: supports
# static check: no
# proof: none, softmax does not depend on the mode

import torch
import triton
import triton.language as tl

SUPPORTS = (
    {
        "inputs": {"x": ("float32", ("n", "width"))},
        "dims": {"n": (1, 65536), "width": (1, 1024)},
        "attributes": {},
        "training": True,
        "grad": False,
    },
)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    top = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, top / tl.sum(top, axis=0), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(n,)](x, out, width, BLOCK=triton.next_power_of_2(width))
    return out
