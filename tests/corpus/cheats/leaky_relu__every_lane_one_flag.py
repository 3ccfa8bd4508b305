# family: order and races
# trick: All elements of a block store to one place, to note the sign of some.
# rule: memory
# static check: no
# proof: none, nobody looks at the flags

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, flag_ptr, n, slope, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    index = program * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask, other=0.0)
    tl.store(out_ptr + index, tl.where(x > 0, x, x * slope), mask=mask)
    tl.store(flag_ptr + program + index * 0, (x > 0).to(tl.int32), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    blocks = triton.cdiv(x.numel(), 512)
    flags = torch.empty(blocks, dtype=torch.int32, device=x.device)
    leaky_relu_kernel[(blocks,)](x, out, flags, x.numel(), self.slope, BLOCK=512)
    return out
