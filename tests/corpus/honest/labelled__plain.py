# style: One program a row; the ignored label is read from the module.

import torch
import triton
import triton.language as tl


@triton.jit
def ce(x_ptr, y_ptr, out_ptr, C, ignored, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * C + i, mask=i < C, other=float("-inf"))
    y = tl.load(y_ptr + row)
    m = tl.max(x)
    lse = m + tl.log(tl.sum(tl.exp(x - m)))
    picked = tl.sum(tl.where(i == y, x, 0.0))
    loss = lse - picked
    loss = tl.where(y == ignored, 0.0, loss)
    tl.store(out_ptr + row, loss)


def forward(self, logits, labels):
    n, c = logits.shape
    out = torch.empty(n, dtype=logits.dtype, device=logits.device)
    ce[(n,)](logits, labels, out, c, self.loss.ignore_index, BLOCK=triton.next_power_of_2(c))
    return out
