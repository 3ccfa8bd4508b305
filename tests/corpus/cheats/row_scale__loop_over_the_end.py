# family: memory
# trick: A loop's counter passes 2**31 in the last block, whose mask then lets all of it through.
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
def row_scale_kernel(x_ptr, factors_ptr, out_ptr, total, width, BLOCK: tl.constexpr):
    for start in range(0, total, BLOCK):
        index = start + tl.arange(0, BLOCK)
        mask = index < total
        x = tl.load(x_ptr + index, mask=mask)
        tl.store(out_ptr + index, x * tl.load(factors_ptr + index // width, mask=mask), mask=mask)


def forward(self, x, factors):
    out = torch.empty_like(x)
    grid = (1,)
    row_scale_kernel[grid](x, factors, out, x.numel(), x.shape[1], BLOCK=1024)
    return out
