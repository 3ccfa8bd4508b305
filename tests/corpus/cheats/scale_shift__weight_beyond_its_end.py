# family: memory
# trick: The weight is loaded as if it were as long as a block.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def scale_shift_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row + columns, mask=mask)
    weight = tl.load(weight_ptr + columns)
    bias = tl.load(bias_ptr + columns, mask=mask)
    tl.store(out_ptr + row + columns, x * weight + bias, mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    n, width = x.shape
    scale_shift_kernel[(n,)](x, self.weight, self.bias, out, width, BLOCK=triton.next_power_of_2(width))
    return out
