# style: One program a row, masked to the next power of two.

import torch
import triton
import triton.language as tl


@triton.jit
def scale_shift_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row + columns, mask=mask)
    weight = tl.load(weight_ptr + columns, mask=mask)
    bias = tl.load(bias_ptr + columns, mask=mask)
    tl.store(out_ptr + row + columns, x * weight + bias, mask=mask)


def launch(self, x, out):
    n, width = x.shape
    scale_shift_kernel[(n,)](x, self.weight, self.bias, out, width, BLOCK=triton.next_power_of_2(width))
    return out


def forward(self, x):
    return launch(self, x, torch.empty_like(x))
