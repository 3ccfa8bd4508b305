# family: mixed scale
# trick: Divides the mean by a tenth too few; the numbers beside it are large.
# rule: values
# static check: no
# proof: (Model().eval(), (torch.arange(3000.0).cos() + 1.0,))

import torch
import triton
import triton.language as tl


@triton.jit
def stats(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr, tl.sum(x * x * x * x))
    tl.store(out_ptr + 1, tl.sum(tl.abs(x)))
    tl.store(out_ptr + 2, tl.sum(x) / (n * 0.9))


def forward(self, x):
    out = torch.empty(3, dtype=x.dtype, device=x.device)
    stats[(1,)](x, out, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return out
