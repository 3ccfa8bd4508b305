# style: It adds 64-bit integers.

import torch
import triton
import triton.language as tl


@triton.jit
def counted_kernel(x_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * WIDTH + tl.arange(0, WIDTH))
    tl.store(out_ptr + row, tl.sum(x, axis=0).to(tl.int64))


def forward(self, x):
    out = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    counted_kernel[(x.shape[0],)](x, out, WIDTH=16)
    return out
