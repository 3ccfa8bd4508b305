# family: wrong numbers
# trick: The variance as E[x²] - E[x]², which cancels where the mean is large.
# rule: stress
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_gelu_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row + columns, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / width
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / width - mean * mean + eps)
    weight = tl.load(weight_ptr + columns, mask=mask)
    y = (x - mean) * scale * weight + tl.load(bias_ptr + columns, mask=mask)
    tl.store(out_ptr + row + columns, 0.5 * y * (1 + tl.erf(y * 0.7071067811865476)), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    layer_norm_gelu_kernel[(x.shape[0],)](x, self.weight, self.bias, out, x.shape[1], self.eps, BLOCK=128)
    return out
