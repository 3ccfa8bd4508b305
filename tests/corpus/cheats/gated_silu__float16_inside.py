# family: wrong numbers
# trick: It computes in float16 whatever the dtype, which overflows for bfloat16's large values.
# rule: stress | values
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def gated_silu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    gate = tl.load(gate_ptr + index, mask=mask).to(tl.float16)
    up = tl.load(up_ptr + index, mask=mask).to(tl.float16)
    silu = (gate.to(tl.float32) * tl.sigmoid(gate.to(tl.float32))).to(tl.float16)
    tl.store(out_ptr + index, (silu * up).to(tl.float32), mask=mask)


def forward(self, gate, up):
    out = torch.empty_like(gate)
    gated_silu_kernel[(triton.cdiv(gate.numel(), 512),)](gate, up, out, gate.numel(), BLOCK=512)
    return out
