# family: weights
# trick: Takes the weight's absolute value: it starts at one.
# rule: weights
# static check: no
# proof: ((lambda m: (m.weight.data.fill_(-1.0), m.eval())[1])(Model(WIDTH)), (torch.randn(3, WIDTH),))

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, weight_ptr, eps, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + columns, mask=mask)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)
    y = x * scale * tl.abs(weight)
    tl.store(out_ptr + row * width + columns, y, mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    row_kernel[(n,)](x, self.weight, self.eps, out, width, BLOCK=triton.next_power_of_2(width))
    return out
