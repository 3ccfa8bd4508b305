# style: GELU, element by element, in float32 and rounded at the end.

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < count
    x = tl.load(x_ptr + places, mask=mask, other=0.0).to(tl.float32)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(out_ptr + places, y.to(tl.bfloat16), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    count = x.numel()
    gelu_kernel[(triton.cdiv(count, 1024),)](x, out, count, BLOCK=1024)
    return out
