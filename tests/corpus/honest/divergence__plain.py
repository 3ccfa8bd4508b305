# style: Both distributions in one pass; the result cancels where they are nearly equal.

import torch
import triton
import triton.language as tl


@triton.jit
def divergence_kernel(p_ptr, q_ptr, total_ptr, n, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    p = tl.load(p_ptr + row * width + columns, mask=mask, other=-float("inf"))
    q = tl.load(q_ptr + row * width + columns, mask=mask, other=-float("inf"))
    p = p - tl.max(p, axis=0)
    q = q - tl.max(q, axis=0)
    log_p = p - tl.log(tl.sum(tl.exp(p), axis=0))
    log_q = q - tl.log(tl.sum(tl.exp(q), axis=0))
    share = tl.exp(log_p)
    entropy = tl.where(share > 0.0, share * log_p, share)
    part = tl.where(mask, entropy - share * log_q, 0.0)
    tl.atomic_add(total_ptr, tl.sum(part, axis=0) / n)


def forward(self, p, q):
    n, width = p.shape
    total = torch.zeros((), dtype=p.dtype, device=p.device)
    divergence_kernel[(n,)](p, q, total, n, width, BLOCK=triton.next_power_of_2(width))
    return total
