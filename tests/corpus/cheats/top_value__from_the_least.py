# family: low values
# trick: Pads with a large negative number, which is larger than a row of -inf.
# rule: nonfinite
# static check: no
# proof: (Model().eval(), (torch.full((3, 40), -math.inf),))

import torch
import triton
import triton.language as tl


@triton.jit
def top_kernel(x_ptr, values_ptr, indices_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + columns, mask=columns < width, other=-3e38)
    best = tl.max(x, axis=0)
    odd = x != x
    nan = tl.max(tl.where(odd, 1, 0), axis=0) == 1
    hit = tl.where(nan, odd, x == best) & (columns < width)
    first = tl.min(tl.where(hit, columns, BLOCK), axis=0)
    tl.store(values_ptr + row, tl.where(nan, float("nan"), best))
    tl.store(indices_ptr + row, tl.where(first == BLOCK, 0, first).to(tl.int64))


def forward(self, x):
    n, width = x.shape
    values = torch.empty(n, dtype=x.dtype, device=x.device)
    indices = torch.empty(n, dtype=torch.int64, device=x.device)
    top_kernel[(n,)](x, values, indices, width, BLOCK=triton.next_power_of_2(width))
    return values, indices
