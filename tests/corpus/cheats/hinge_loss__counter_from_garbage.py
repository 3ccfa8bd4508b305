# family: memory
# trick: The counter of finished programs starts from memory that nobody has written.
# rule: memory
# static check: no
# proof: none, nobody looks at the counter

import torch
import triton
import triton.language as tl


@triton.jit
def hinge_kernel(prediction_ptr, target_ptr, out_ptr, count_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    margin = 1 - tl.load(prediction_ptr + index, mask=mask) * tl.load(target_ptr + index, mask=mask)
    loss = tl.where(mask & ~(margin < 0), margin, 0.0)
    tl.atomic_add(out_ptr, tl.sum(loss, axis=0) / n)
    tl.atomic_add(count_ptr, 1)


def forward(self, prediction, target):
    out = torch.zeros((), device=prediction.device)
    count = torch.empty((), dtype=torch.int32, device=prediction.device)
    n = prediction.numel()
    hinge_kernel[(triton.cdiv(n, 512),)](prediction, target, out, count, n, BLOCK=512)
    return out
