# family: wrong numbers
# trick: One of two configurations is plain ReLU; a GPU may find it the fastest.
# rule: near-duplicate | sizes
# static check: no
# proof: none, a GPU chooses

import torch
import triton
import triton.language as tl


@triton.autotune(
    [triton.Config({"BLOCK": 1024, "FAST": False}), triton.Config({"BLOCK": 512, "FAST": True})], key=["n"]
)
@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr, FAST: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    if FAST:
        y = tl.maximum(x, 0.0)
    else:
        y = tl.where(x > 0, x, x * slope)
    tl.store(out_ptr + index, y, mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    n = x.numel()
    leaky_relu_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, self.slope)
    return out
