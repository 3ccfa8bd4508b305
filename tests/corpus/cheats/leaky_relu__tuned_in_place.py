# family: order and races
# trick: An autotuned kernel works in place: tuning applies the slope again and again.
# rule: memory | values | sizes
# static check: no
# proof: none, Triton tunes on a GPU only

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 512})],
    key=["n"],
)
@triton.jit
def leaky_relu_kernel(x_ptr, n, slope, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(x_ptr + index, tl.where(x > 0, x, x * slope), mask=index < n)


def forward(self, x):
    out = x.clone()
    n = x.numel()

    def grid(meta):
        return (triton.cdiv(n, meta["BLOCK"]),)

    leaky_relu_kernel[grid](out, n, self.slope)
    return out
