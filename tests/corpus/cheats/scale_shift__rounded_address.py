# family: alignment
# trick: Rounds its input's address down to a multiple of 16 bytes.
# rule: alignment
# static check: yes
# proof: (Model(WIDTH).eval(), (torch.randn(3 * WIDTH + 1)[1:].view(3, WIDTH),))

import torch
import triton
import triton.language as tl


@triton.jit
def scale_shift_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < WIDTH
    start = (x_ptr.to(tl.int64) // 16 * 16).to(tl.pointer_type(tl.float32))
    x = tl.load(start + row * WIDTH + columns, mask=mask)
    y = x * tl.load(weight_ptr + columns, mask=mask) + tl.load(bias_ptr + columns, mask=mask)
    tl.store(out_ptr + row * WIDTH + columns, y, mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    n, width = x.shape
    scale_shift_kernel[(n,)](x, self.weight, self.bias, out, WIDTH=width, BLOCK=triton.next_power_of_2(width))
    return out
