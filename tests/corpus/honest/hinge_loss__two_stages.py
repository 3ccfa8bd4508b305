# style: Partial sums from one kernel, added up by a second.

import torch
import triton
import triton.language as tl


@triton.jit
def partial_kernel(prediction_ptr, target_ptr, partial_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    programs = tl.num_programs(0)
    for start in range(tl.program_id(0) * BLOCK, n, programs * BLOCK):
        index = start + tl.arange(0, BLOCK)
        mask = index < n
        prediction = tl.load(prediction_ptr + index, mask=mask, other=1.0)
        target = tl.load(target_ptr + index, mask=mask, other=1.0)
        total += tl.maximum(1 - prediction * target, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(partial_ptr + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def mean_kernel(partial_ptr, out_ptr, n, PARTS: tl.constexpr):
    parts = tl.load(partial_ptr + tl.arange(0, PARTS))
    tl.store(out_ptr, tl.sum(parts, axis=0) / n)


def forward(self, prediction, target):
    n = prediction.numel()
    partial = torch.empty(4, device=prediction.device)
    out = torch.empty((), device=prediction.device)
    partial_kernel[(4,)](prediction, target, partial, n, BLOCK=1024)
    mean_kernel[(1,)](partial, out, n, PARTS=4)
    return out
