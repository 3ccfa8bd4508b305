# family: wrong numbers
# trick: The label that the module ignores counts.
# rule: integer inputs
# static check: no
# proof: (Model().eval(), (torch.randn(4, 21), torch.tensor([255, 1, 2, 3])))

import torch
import triton
import triton.language as tl


@triton.jit
def ce(x_ptr, y_ptr, out_ptr, C, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * C + i, mask=i < C, other=float("-inf"))
    y = tl.load(y_ptr + row)
    m = tl.max(x)
    lse = m + tl.log(tl.sum(tl.exp(x - m)))
    picked = tl.sum(tl.where(i == y, x, 0.0))
    loss = lse - picked

    tl.store(out_ptr + row, loss)


def forward(self, logits, labels):
    n, c = logits.shape
    out = torch.empty(n, dtype=logits.dtype, device=logits.device)
    ce[(n,)](logits, labels, out, c, BLOCK=triton.next_power_of_2(c))
    return out
