# family: memory
# trick: A workspace wider than the row is read whole; its padding was never written.
# rule: memory
# static check: no
# proof: none, what nobody wrote is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, work_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width)
    tl.store(work_ptr + row * BLOCK + columns, x, mask=columns < width)


@triton.jit
def softmax_kernel(work_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.where(mask, tl.load(work_ptr + row * BLOCK + columns), -float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, powers / tl.sum(powers, axis=0), mask=mask)


def forward(self, x):
    n, width = x.shape
    block = triton.next_power_of_2(width)
    out, work = torch.empty_like(x), torch.empty(n, block, device=x.device)
    copy_kernel[(n,)](x, work, width, BLOCK=block)
    softmax_kernel[(n,)](work, out, width, BLOCK=block)
    return out
