# family: memory
# trick: The block pointer checks rows and not columns.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def scale_shift_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, n, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    first = tl.program_id(0) * ROWS
    source = tl.make_block_ptr(x_ptr, (n, width), (width, 1), (first, 0), (ROWS, COLUMNS), (1, 0))
    target = tl.make_block_ptr(out_ptr, (n, width), (width, 1), (first, 0), (ROWS, COLUMNS), (1, 0))
    columns = tl.arange(0, COLUMNS)
    weight = tl.load(weight_ptr + columns, mask=columns < width, other=0.0)
    bias = tl.load(bias_ptr + columns, mask=columns < width, other=0.0)
    x = tl.load(source, boundary_check=(0,))
    tl.store(target, x * weight[None, :] + bias[None, :], boundary_check=(0, 1))


def forward(self, x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n, width = x.shape
    grid = (triton.cdiv(n, 4),)
    scale_shift_kernel[grid](x, self.weight, self.bias, out, n, width, ROWS=4, COLUMNS=128)
    return out
