# family: order and races
# trick: The counter of finished programs is loaded and stored.
# rule: memory | values
# static check: no
# proof: none, the values are right wherever the interpreter runs it in order

import torch
import triton
import triton.language as tl


@triton.jit
def hinge_kernel(
    prediction_ptr, target_ptr, partial_ptr, count_ptr, out_ptr, n, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    program = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(program * BLOCK, n, PARTS * BLOCK):
        index = start + tl.arange(0, BLOCK)
        mask = index < n
        margin = 1 - tl.load(prediction_ptr + index, mask=mask) * tl.load(target_ptr + index, mask=mask)
        total += tl.where(mask & ~(margin < 0), margin, 0.0)
    mine = tl.sum(total, axis=0)
    tl.store(partial_ptr + program, mine)
    done = tl.load(count_ptr) + 1
    tl.store(count_ptr, done)
    if done == PARTS:
        tl.store(out_ptr, tl.sum(tl.load(partial_ptr + tl.arange(0, PARTS)), axis=0) / n)


def forward(self, prediction, target):
    partial = torch.zeros(4, device=prediction.device)
    count = torch.zeros((), dtype=torch.int32, device=prediction.device)
    out = torch.empty((), device=prediction.device)
    n = prediction.numel()
    hinge_kernel[(4,)](prediction, target, partial, count, out, n, PARTS=4, BLOCK=128)
    return out
