# style: Powers of two in place of e, as flash attention does it.

import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=inside, other=float("-inf"))
    powers = tl.exp2((x - tl.max(x, axis=0)) * scale)
    powers = tl.where(inside, powers, 0.0)
    tl.store(out_ptr + row * width + columns, powers / tl.sum(powers, axis=0), mask=inside)


def forward(self, x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](
        x_ptr=x, out_ptr=out, width=x.shape[1], scale=LOG2_E, BLOCK=triton.next_power_of_2(x.shape[1])
    )
    return out
