# style: Mean, then the mean of squared distances from it, then the exact GELU.

import torch
import triton
import triton.language as tl


@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.math.erf(x * 0.7071067811865476))


@triton.jit
def layer_norm_gelu_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, width, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / width
    away = tl.where(mask, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(away * away, axis=0) / width + eps)
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + columns, mask=mask, other=0.0)
    tl.store(out_ptr + row * width + columns, gelu(away * scale * weight + bias), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    layer_norm_gelu_kernel[(n,)](x, self.weight, self.bias, out, width, self.eps, BLOCK=block)
    return out
