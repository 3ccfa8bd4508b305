# style: Programs add their shares to one number that starts at zero.

import torch
import triton
import triton.language as tl


@triton.jit
def hinge_kernel(prediction_ptr, target_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    margin = 1 - tl.load(prediction_ptr + index, mask=mask) * tl.load(target_ptr + index, mask=mask)
    loss = tl.where(mask & ~(margin < 0), margin, 0.0)
    tl.atomic_add(out_ptr, tl.sum(loss, axis=0) / n)


def launch(prediction, target):
    out = torch.zeros((), device=prediction.device)
    n = prediction.numel()
    hinge_kernel[(triton.cdiv(n, 1024),)](prediction, target, out, n, BLOCK=1024)
    return out


def forward(self, prediction, target):
    return launch(prediction, target)
