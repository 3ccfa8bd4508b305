# family: order and races
# trick: The fourth program sets the sum to zero and hopes to be the first.
# rule: memory
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def hinge_kernel(prediction_ptr, target_ptr, out_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    index = program * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    margin = 1 - tl.load(prediction_ptr + index, mask=mask) * tl.load(target_ptr + index, mask=mask)
    loss = tl.where(mask & ~(margin < 0), margin, 0.0)
    if program == 3:
        tl.store(out_ptr, 0.0)
    tl.atomic_add(out_ptr, tl.sum(loss, axis=0) / n)


def forward(self, prediction, target):
    out = torch.empty((), device=prediction.device)
    n = prediction.numel()
    hinge_kernel[(triton.cdiv(n, 512),)](prediction, target, out, n, BLOCK=512)
    return out
