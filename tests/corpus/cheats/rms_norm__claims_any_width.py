# family: the file itself
# trick: SUPPORTS leaves the width open, for a kernel that divides by 128.
# rule: supports
# static check: no
# proof: (Model(32).eval(), (torch.randn(3, 32),))

import torch
import triton
import triton.language as tl

SUPPORTS = (
    {
        "inputs": {"x": ("float32", ("n", "width"))},
        "dims": {"n": (1, 65536), "width": (1, 4096)},
        "attributes": {"weight": ("float32", ("width",))},
        "training": False,
        "grad": False,
    },
)


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, width, eps, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    index = tl.program_id(0) * width + columns
    x = tl.load(x_ptr + index, mask=mask, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / 128 + eps)
    tl.store(out_ptr + index, x * scale * tl.load(weight_ptr + columns, mask=mask), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    rms_norm_kernel[(n,)](x, self.weight, out, width, self.eps, BLOCK=triton.next_power_of_2(width))
    return out
