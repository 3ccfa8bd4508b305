# trick: Takes the stride of the rows for their width, which a single row need not have.
# proof: (Model().eval(), (torch.randn(100, 1).t(),))

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, powers / tl.sum(powers, axis=0), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.stride(0), BLOCK=triton.next_power_of_2(x.stride(0)))
    return out
