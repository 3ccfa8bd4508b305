# family: wrong numbers
# trick: The maximum with its index loses a NaN in front of other values.
# rule: nonfinite
# static check: no
# proof: none, Triton's own interpreter keeps the NaN that a GPU drops

import torch
import triton
import triton.language as tl


@triton.jit
def top_kernel(x_ptr, values_ptr, indices_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=-float("inf"))
    top, index = tl.max(x, axis=0, return_indices=True)
    tl.store(indices_ptr + row, index.to(tl.int64))
    tl.store(values_ptr + row, top)


def forward(self, x):
    n, width = x.shape
    values = torch.empty(n, dtype=x.dtype, device=x.device)
    indices = torch.empty(n, dtype=torch.int64, device=x.device)
    top_kernel[(n,)](x, values, indices, width, BLOCK=triton.next_power_of_2(width))
    return values, indices
