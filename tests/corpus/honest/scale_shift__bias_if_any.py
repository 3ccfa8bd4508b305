# style: A bias if the module has one; refuses to be differentiated.

import torch
import triton
import triton.language as tl


@triton.jit
def k(x_ptr, w_ptr, b_ptr, out_ptr, width, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * width + i, mask=i < width)
    y = x * tl.load(w_ptr + i, mask=i < width)
    if HAS_BIAS:
        y += tl.load(b_ptr + i, mask=i < width)
    tl.store(out_ptr + row * width + i, y, mask=i < width)


def forward(self, x):
    bias = self.bias if hasattr(self, "bias") and self.bias is not None else None
    out = torch.empty_like(x)
    if x.requires_grad and torch.is_grad_enabled():
        raise NotImplementedError("no backward pass")
    k[(x.shape[0],)](
        x,
        self.weight,
        bias,
        out,
        x.shape[1],
        BLOCK=triton.next_power_of_2(x.shape[1]),
        HAS_BIAS=bias is not None,
    )
    return out
