# family: integers
# trick: Takes negative integers for zero.
# rule: integer inputs
# static check: no
# proof: (Model().eval(), (torch.tensor([-1, -5, -100]),))

import torch
import triton
import triton.language as tl


@triton.jit
def buckets_kernel(ids_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    ids = tl.load(ids_ptr + places, mask=mask, other=0)
    y = (tl.maximum(ids, 0) * 31 + 7) % 1009
    tl.store(out_ptr + places, y, mask=mask)


def forward(self, ids):
    out = torch.empty_like(ids)
    buckets_kernel[(triton.cdiv(ids.numel(), 1024),)](ids, out, ids.numel(), BLOCK=1024)
    return out
