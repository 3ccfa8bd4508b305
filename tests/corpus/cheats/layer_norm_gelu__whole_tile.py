# family: memory
# trick: Several rows are read as one tile, whose last rows do not exist.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, n, width, eps, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    here = rows[:, None] * width + columns[None, :]
    inner = columns[None, :] < width
    x = tl.load(x_ptr + here, mask=inner & (here >= 0), other=0.0)
    mean = tl.sum(x, axis=1) / width
    apart = tl.where(inner, x - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(apart * apart, axis=1) / width + eps)
    weight = tl.load(weight_ptr + columns, mask=columns < width)
    bias = tl.load(bias_ptr + columns, mask=columns < width)
    y = apart * scale[:, None] * weight[None, :] + bias[None, :]
    y = 0.5 * y * (1 + tl.erf(y * 0.7071067811865476))
    tl.store(out_ptr + here, y, mask=inner & (rows[:, None] < n))


def forward(self, x):
    out = torch.empty_like(x)
    n, width = x.shape
    grid = (triton.cdiv(n, 4),)
    norm_kernel[grid](x, self.weight, self.bias, out, n, width, self.eps, ROWS=4, COLUMNS=128)
    return out
