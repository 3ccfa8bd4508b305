# family: order and races
# trick: Programs read the row of their ticket and write the row of their place in the grid.
# rule: repeat | values
# static check: no
# proof: none, the values are right wherever the interpreter runs it in order

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, ticket_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.atomic_add(ticket_ptr, 1)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    here = out_ptr + tl.program_id(0) * width + columns
    tl.store(here, powers / tl.sum(powers, axis=0), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    ticket = torch.zeros((), dtype=torch.int32, device=x.device)
    softmax_kernel[(x.shape[0],)](x, ticket, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
