# style: Adds the mask that it is given.

import torch
import triton
import triton.language as tl


@triton.jit
def causal_kernel(scores_ptr, mask_ptr, out_ptr, LENGTH: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, LENGTH)
    x = tl.load(scores_ptr + row * LENGTH + columns)
    x = x + tl.load(mask_ptr + row % LENGTH * LENGTH + columns)
    top = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * LENGTH + columns, top / tl.sum(top, axis=0))


def forward(self, scores, mask):
    out = torch.empty_like(scores)
    n, length, _ = scores.shape
    causal_kernel[(n * length,)](scores, mask, out, LENGTH=length)
    return out
