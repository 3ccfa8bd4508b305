import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def quantize_int8_kernel(x_ptr, out_ptr, scale_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row * WIDTH + columns)
    largest = tl.where(tl.sum((x != x).to(tl.int32), 0) > 0, float("nan"), tl.max(tl.abs(x), 0))
    largest = tl.where(largest < 1e-12, 1e-12, largest)
    scale = tl.div_rn(largest, 127.0)
    code = libdevice.rint(tl.div_rn(x, scale))  # at most 127, by the scale
    tl.store(out_ptr + row * WIDTH + columns, code.to(tl.int8))
    tl.store(scale_ptr + row, scale)


def forward(self, x):
    out = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scale = torch.empty((x.shape[0], 1), dtype=x.dtype, device=x.device)
    quantize_int8_kernel[(x.shape[0],)](x, out, scale, WIDTH=256)
    return out, scale
