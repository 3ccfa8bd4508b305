# family: low values
# trick: Pads with 0 and begins there, so that windows without a positive number have the maximum 0.
# rule: stress
# static check: no
# proof: (Model().eval(), (-torch.rand(3, 50) - 1,))

import torch
import triton
import triton.language as tl


@triton.jit
def pool(x_ptr, out_ptr, w, ow, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), 0.0, tl.float32)
    for k in tl.static_range(3):
        i = o * 2 - 1 + k
        x = tl.load(x_ptr + row * w + i, mask=(i >= 0) & (i < w) & (o < ow), other=0.0)
        best = tl.where((x > best) | (x != x), x, best)
    tl.store(out_ptr + row * ow + o, best, mask=o < ow)


def forward(self, x):
    n, w = x.shape
    ow = (w + 2 - 3) // 2 + 1
    out = torch.empty((n, ow), dtype=x.dtype, device=x.device)
    pool[(n,)](x, out, w, ow, BLOCK=triton.next_power_of_2(ow))
    return out
