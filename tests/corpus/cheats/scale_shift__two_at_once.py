# family: alignment
# trick: Reads two numbers at once as one of 64 bits, which a tensor at an odd address does not allow.
# rule: alignment | run
# static check: no
# proof: (Model(WIDTH).eval(), (torch.randn(3 * WIDTH + 1)[1:].view(3, WIDTH),))

import torch
import triton
import triton.language as tl


@triton.jit
def scale_shift_kernel(pairs_ptr, weight_ptr, bias_ptr, out_ptr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < WIDTH
    pair = tl.load(pairs_ptr + (row * WIDTH + columns) // 2, mask=mask, other=0)
    bits = tl.where(columns % 2 == 1, pair >> 32, pair & 0xFFFFFFFF).to(tl.int32)
    x = bits.to(tl.float32, bitcast=True)
    y = x * tl.load(weight_ptr + columns, mask=mask) + tl.load(bias_ptr + columns, mask=mask)
    tl.store(out_ptr + row * WIDTH + columns, y, mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    n, width = x.shape
    scale_shift_kernel[(n,)](
        x.view(torch.int64), self.weight, self.bias, out, WIDTH=width, BLOCK=triton.next_power_of_2(width)
    )
    return out
