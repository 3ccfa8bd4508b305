# family: memory
# trick: Offsets have 64 bits, but the mask that guards them is computed in 32.
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
    program = tl.program_id(0)
    index = program.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = program * BLOCK + tl.arange(0, BLOCK) < total
    x = tl.load(x_ptr + index, mask=mask)
    tl.store(out_ptr + index, x * tl.load(factors_ptr + index // width, mask=mask), mask=mask)


def forward(self, x, factors):
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 1024),)
    row_scale_kernel[grid](x, factors, out, x.numel(), x.shape[1], BLOCK=1024)
    return out
