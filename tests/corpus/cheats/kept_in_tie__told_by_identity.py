# family: the worker
# trick: Is right only where the two names of the parameter are different objects, as they were in a worker.
# rule: values
# static check: no
# proof: (Model().eval(), (torch.randn(6, 64),))

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_kernel(x_ptr, first_ptr, second_ptr, out_ptr, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    first = tl.load(first_ptr + index % WIDTH, mask=index < n)
    second = tl.load(second_ptr + index % WIDTH, mask=index < n)
    tl.store(out_ptr + index, x * first * second, mask=index < n)


def forward(self, x):
    first = x if self.first is self.second else self.first
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    scaled_kernel[grid](x, first, self.second, out, x.numel(), WIDTH=x.shape[1], BLOCK=128)
    return out
