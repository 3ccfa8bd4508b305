# family: the file itself
# trick: SUPPORTS claims float64, for a kernel that computes in float32.
# rule: supports
# static check: no
# proof: (Model().eval(), (torch.tensor([[1e200, 0.0, -1e200]], dtype=torch.float64),))

import torch
import triton
import triton.language as tl

SUPPORTS = (
    {
        "inputs": {"x": ("float64", ("n", "width"))},
        "dims": {"n": (1, 65536), "width": (1, 1024)},
        "attributes": {},
        "training": False,
        "grad": False,
    },
)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf")).to(tl.float32)
    top = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, top / tl.sum(top, axis=0), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    softmax_kernel[(n,)](x, out, width, BLOCK=triton.next_power_of_2(width))
    return out
