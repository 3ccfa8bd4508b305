# family: types and shapes
# trick: Both outputs are one tensor: who updates the state changes the result.
# rule: aliasing
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def smooth_kernel(x_ptr, state_ptr, out_ptr, n, decay, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    y = decay * tl.load(state_ptr + index, mask=mask) + (1 - decay) * tl.load(x_ptr + index, mask=mask)
    tl.store(out_ptr + index, y, mask=mask)


def launch(self, x, state, out):
    n = x.numel()
    smooth_kernel[(triton.cdiv(n, 512),)](x, state, out, n, self.decay, BLOCK=512)
    return out


def forward(self, x, state):
    out = launch(self, x, state, torch.empty_like(x))
    return out, out
