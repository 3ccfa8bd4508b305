# family: the file itself
# trick: A second domain claims bfloat16, for a kernel that returns float32.
# rule: supports
# static check: no
# proof: (Model().eval(), (torch.randn(3, 40).bfloat16(),))

import torch
import triton
import triton.language as tl

SUPPORTS = (
    {
        "inputs": {"x": ("float32", ("n", "width"))},
        "dims": {"n": (1, 65536), "width": (1, 1024)},
        "attributes": {},
        "training": False,
        "grad": False,
    },
    {
        "inputs": {"x": ("bfloat16", ("n", "width"))},
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
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    softmax_kernel[(n,)](x, out, width, BLOCK=triton.next_power_of_2(width))
    return out
