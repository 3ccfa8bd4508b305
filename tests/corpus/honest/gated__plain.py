# style: Reads parameters that a lambda holds as well.

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=0.0)
    scale = tl.load(weight_ptr + columns, mask=mask)
    shift = tl.load(bias_ptr + columns, mask=mask)
    y = x / (1.0 + tl.exp(-(x * scale + shift)))
    tl.store(out_ptr + row * width + columns, y, mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    row_kernel[(n,)](
        x,
        self.parts["scale"].weight,
        self.parts["shift"].bias,
        out,
        width,
        BLOCK=triton.next_power_of_2(width),
    )
    return out
