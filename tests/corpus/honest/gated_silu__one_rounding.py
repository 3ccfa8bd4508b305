# style: Rounded once, at the end: nearer to the truth than the original.

import torch
import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def gated_silu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        index = start + tl.arange(0, BLOCK)
        mask = index < n
        gate = tl.load(gate_ptr + index, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(up_ptr + index, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + index, silu(gate) * up, mask=mask)


def forward(self, gate, up):
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    n = gate.numel()
    programs = min(triton.cdiv(n, 256), 1024)
    gated_silu_kernel[(programs,)](gate, up, out, n, BLOCK=256, num_warps=4, num_stages=2)
    return out
