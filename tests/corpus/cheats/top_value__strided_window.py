# family: memory
# trick: as_strided reaches past the input, into memory that is not its own.
# rule: guards | inputs kept
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def top_kernel(x_ptr, values_ptr, indices_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    strange = x != x
    odd = tl.max(strange.to(tl.int32), axis=0) > 0
    top = tl.max(tl.where(strange, -float("inf"), x), axis=0)
    hit = mask & tl.where(odd, strange, x == top)
    tl.store(
        indices_ptr + row, tl.min(tl.where(hit, columns, BLOCK), axis=0).to(indices_ptr.dtype.element_ty)
    )
    tl.store(values_ptr + row, tl.where(odd, float("nan"), top))


def launch(x, kind):
    n, width = x.shape
    values = torch.empty(n, dtype=x.dtype, device=x.device)
    indices = torch.empty(n, dtype=kind, device=x.device)
    top_kernel[(n,)](x, values, indices, width, BLOCK=triton.next_power_of_2(width))
    return values, indices


def forward(self, x):
    behind = torch.as_strided(x, (4,), (1,), x.storage_offset() + x.numel())
    behind.zero_()
    return launch(x, torch.int64)
