# family: torch in disguise
# trick: An operator registered with torch.library hides torch's arithmetic.
# rule: torch's share | launches
# static check: yes

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + index, tl.load(x_ptr + index, mask=index < n), mask=index < n)


def copied(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
    return out


@torch.library.custom_op("corpus::scale_shift", mutates_args=())
def scale_shift(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x * weight + bias


def forward(self, x):
    return copied(scale_shift(x, self.weight, self.bias))
