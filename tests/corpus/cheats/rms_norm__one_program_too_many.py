# family: memory
# trick: One program more than there are rows reads a row behind the last.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, n, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row * WIDTH + columns)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / WIDTH + eps)
    y = x * scale * tl.load(weight_ptr + columns)
    tl.store(out_ptr + row * WIDTH + columns, y, mask=(columns >= 0) & (row < n))


def forward(self, x):
    out = torch.empty_like(x)
    n, width = x.shape
    rms_norm_kernel[(n + 1,)](x, self.weight, out, n, self.eps, WIDTH=width)
    return out
