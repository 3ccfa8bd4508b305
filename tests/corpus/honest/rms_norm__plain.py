# style: One program a row; the width is the block.

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / WIDTH + eps)
    tl.store(out_ptr + row + columns, x * scale * tl.load(weight_ptr + columns))


def launch(self, x):
    out = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, self.weight, out, self.eps, WIDTH=x.shape[1])
    return out


def forward(self, x):
    return launch(self, x)
