# family: wrong numbers
# trick: It averages every second element only.
# rule: values | sizes
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def hinge_kernel(prediction_ptr, target_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * 2
    mask = index < n
    margin = 1 - tl.load(prediction_ptr + index, mask=mask) * tl.load(target_ptr + index, mask=mask)
    loss = tl.where(mask & ~(margin < 0), margin, 0.0)
    tl.atomic_add(out_ptr, tl.sum(loss, axis=0) / tl.cdiv(n, 2))


def forward(self, prediction, target):
    out = torch.zeros((), device=prediction.device)
    n = prediction.numel()
    hinge_kernel[(triton.cdiv(n, 2048),)](prediction, target, out, n, BLOCK=1024)
    return out
