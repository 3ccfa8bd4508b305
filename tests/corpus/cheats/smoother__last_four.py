# family: memory
# trick: Elements are taken in fours and the last four are not masked when loaded.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.jit
def smooth_kernel(x_ptr, state_ptr, out_ptr, next_ptr, n, decay, BLOCK: tl.constexpr):
    fours = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) * 4
    index = fours[:, None] + tl.arange(0, 4)[None, :]
    some = fours[:, None] < n
    x = tl.load(x_ptr + index, mask=some)
    state = tl.load(state_ptr + index, mask=some)
    y = decay * state + (1 - decay) * x
    tl.store(out_ptr + index, y, mask=index < n)
    tl.store(next_ptr + index, y, mask=index < n)


def forward(self, x, state):
    out, following = torch.empty_like(x), torch.empty_like(state)
    n = x.numel()
    smooth_kernel[(triton.cdiv(n, 512),)](x, state, out, following, n, self.decay, BLOCK=128)
    return out, following
