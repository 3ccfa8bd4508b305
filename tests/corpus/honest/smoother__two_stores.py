# style: One kernel, the same value stored to two outputs.

import torch
import triton
import triton.language as tl


@triton.jit
def smooth_kernel(x_ptr, state_ptr, out_ptr, next_ptr, n, decay, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    state = tl.load(state_ptr + index, mask=mask)
    y = decay * state + (1 - decay) * x
    tl.store(out_ptr + index, y, mask=mask)
    tl.store(next_ptr + index, y, mask=mask)


def forward(self, x, state):
    out, following = torch.empty_like(x), torch.empty_like(state)
    n = x.numel()
    smooth_kernel[(triton.cdiv(n, 512),)](x, state, out, following, n, self.decay, BLOCK=512)
    return out, following
