# family: integers
# trick: Calculates in 32 bits, which overflows for large integers.
# rule: integer inputs
# static check: no
# proof: (Model().eval(), (torch.tensor([1 << 40, 3, (1 << 33) + 5]),))

import torch
import triton
import triton.language as tl


@triton.jit
def buckets_kernel(ids_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    ids = tl.load(ids_ptr + places, mask=mask, other=0)
    mixed = ids.to(tl.int32) * 31 + 7
    rest = (mixed % 1009).to(tl.int64)
    y = tl.where(rest < 0, rest + 1009, rest)
    tl.store(out_ptr + places, y, mask=mask)


def forward(self, ids):
    out = torch.empty_like(ids)
    buckets_kernel[(triton.cdiv(ids.numel(), 1024),)](ids, out, ids.numel(), BLOCK=1024)
    return out
