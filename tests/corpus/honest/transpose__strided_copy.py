# style: A copy between two views with strides of their own.

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(
    x_ptr,
    out_ptr,
    rows,
    columns,
    x_matrix,
    x_row,
    x_column,
    out_matrix,
    out_row,
    out_column,
    TILE: tl.constexpr,
):
    i = tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    source = x_ptr + tl.program_id(0) * x_matrix + i[:, None] * x_row + j[None, :] * x_column
    target = out_ptr + tl.program_id(0) * out_matrix + i[:, None] * out_row + j[None, :] * out_column
    tl.store(target, tl.load(source, mask=inside), mask=inside)


def forward(self, x):
    n, rows, columns = x.shape
    out = x.new_empty((n, columns, rows))
    view = out.transpose(1, 2)
    grid = (n, triton.cdiv(columns, 32))
    copy_kernel[grid](x, view, rows, columns, *x.stride(), *view.stride(), TILE=32)
    return out
