# family: wrong numbers
# trick: The mean square is taken from the first half of each row.
# rule: values
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    scale = tl.rsqrt(tl.sum(tl.where(columns < WIDTH // 2, x * x, 0.0), axis=0) / (WIDTH // 2) + eps)
    tl.store(out_ptr + row + columns, x * scale * tl.load(weight_ptr + columns))


def launch(self, x):
    out = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, self.weight, out, self.eps, WIDTH=x.shape[1])
    return out


def forward(self, x):
    return launch(self, x)
