# family: memory
# trick: The mask of the loads lets one element too many through.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def hinge_kernel(prediction_ptr, target_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index <= n
    margin = 1 - tl.load(prediction_ptr + index, mask=mask) * tl.load(target_ptr + index, mask=mask)
    loss = tl.where((index < n) & ~(margin < 0), margin, 0.0)
    tl.atomic_add(out_ptr, tl.sum(loss, axis=0) / n)


def forward(self, prediction, target):
    out = torch.zeros((), device=prediction.device)
    n = prediction.numel()
    hinge_kernel[(triton.cdiv(n, 512),)](prediction, target, out, n, BLOCK=512)
    return out
