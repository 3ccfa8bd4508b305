# family: wrong numbers
# trick: The sigmoid is cut from three straight lines.
# rule: values
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def gated_silu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    gate = tl.load(gate_ptr + index, mask=mask).to(tl.float32)
    up = tl.load(up_ptr + index, mask=mask).to(tl.float32)
    sigmoid = tl.minimum(tl.maximum(gate / 6 + 0.5, 0.0), 1.0)
    tl.store(out_ptr + index, gate * sigmoid * up, mask=mask)


def forward(self, gate, up):
    out = torch.empty_like(gate)
    gated_silu_kernel[(triton.cdiv(gate.numel(), 512),)](gate, up, out, gate.numel(), BLOCK=512)
    return out
