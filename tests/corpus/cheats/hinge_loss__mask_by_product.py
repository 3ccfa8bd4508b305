# family: memory
# trick: Reads run past the end, and their values are multiplied by zero.
# rule: memory
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def hinge_kernel(prediction_ptr, target_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (index < n).to(tl.float32)
    margin = 1 - tl.load(prediction_ptr + index) * tl.load(target_ptr + index)
    loss = tl.where(margin < 0, 0.0, margin)
    tl.atomic_add(out_ptr, tl.sum(loss * inside, axis=0) / n)


def forward(self, prediction, target):
    out = torch.zeros((), device=prediction.device)
    n = prediction.numel()
    hinge_kernel[(triton.cdiv(n, 1024),)](prediction, target, out, n, BLOCK=1024)
    return out
