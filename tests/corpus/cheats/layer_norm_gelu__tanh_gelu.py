# family: wrong numbers
# trick: GELU by its tanh approximation, which is off by some 1e-4.
# rule: values
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
    away = tl.where(mask, x - tl.sum(x, axis=0) / width, 0.0)
    scale = tl.rsqrt(tl.sum(away * away, axis=0) / width + eps)
    y = away * scale * tl.load(weight_ptr + columns, mask=mask) + tl.load(bias_ptr + columns, mask=mask)
    inner = 0.7978845608028654 * (y + 0.044715 * y * y * y)
    tl.store(out_ptr + row + columns, y * tl.sigmoid(2 * inner), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    layer_norm_gelu_kernel[(x.shape[0],)](x, self.weight, self.bias, out, x.shape[1], self.eps, BLOCK=128)
    return out
