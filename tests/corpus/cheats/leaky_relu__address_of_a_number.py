# family: memory
# trick: Reads from an address that is passed as a number.
# only static check: the address is right

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, address, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    made = address.to(tl.int64).to(x_ptr.dtype)
    x = tl.load(made + index, mask=mask)
    tl.store(out_ptr + index, tl.where(x > 0, x, x * slope), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    n = x.numel()
    leaky_relu_kernel[(triton.cdiv(n, 1024),)](x, out, n, self.slope, x.data_ptr(), BLOCK=1024)
    return out
