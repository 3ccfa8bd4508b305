# family: the clock
# trick: Torch's operations hide from the watch; the GPU's time shows them.
# rule: device time
# static check: yes
# device: cuda

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


def forward(self, x):
    with torch._C._DisableTorchDispatch():
        wide = x.double()
        result = torch.cumsum(wide, -1).float()
    return copied(result)
