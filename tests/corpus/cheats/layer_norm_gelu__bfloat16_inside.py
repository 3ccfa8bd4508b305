# family: wrong numbers
# trick: It computes in bfloat16 what is asked for in float32.
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
    x = tl.load(x_ptr + row + columns, mask=mask, other=0.0).to(tl.bfloat16).to(tl.float32)
    away = tl.where(mask, x - tl.sum(x, axis=0) / width, 0.0)
    scale = tl.rsqrt(tl.sum(away * away, axis=0) / width + eps)
    y = away * scale * tl.load(weight_ptr + columns, mask=mask) + tl.load(bias_ptr + columns, mask=mask)
    tl.store(out_ptr + row + columns, 0.5 * y * (1 + tl.erf(y * 0.7071067811865476)), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    layer_norm_gelu_kernel[(x.shape[0],)](x, self.weight, self.bias, out, x.shape[1], self.eps, BLOCK=128)
    return out
