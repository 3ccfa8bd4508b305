# family: order and races
# trick: All programs keep their squares in one workspace.
# rule: memory
# static check: no
# proof: none, the values are right wherever the interpreter runs it in order

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, work_ptr, out_ptr, eps, WIDTH: tl.constexpr):
    row = tl.program_id(0) * WIDTH
    columns = tl.arange(0, WIDTH)
    x = tl.load(x_ptr + row + columns)
    tl.store(work_ptr + columns, x * x)
    tl.debug_barrier()
    scale = tl.rsqrt(tl.sum(tl.load(work_ptr + columns), axis=0) / WIDTH + eps)
    tl.store(out_ptr + row + columns, x * scale * tl.load(weight_ptr + columns))


def forward(self, x):
    out, work = torch.empty_like(x), torch.empty(x.shape[1], device=x.device)
    rms_norm_kernel[(x.shape[0],)](x, self.weight, work, out, self.eps, WIDTH=x.shape[1])
    return out
