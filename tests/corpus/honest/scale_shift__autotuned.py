# style: Flat blocks whose size Triton tunes by itself.

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 256}, num_warps=2),
        triton.Config({"BLOCK": 1024}, num_warps=4),
    ],
    key=["total"],
)
@triton.jit
def scale_shift_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, total, width, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < total
    column = index % width
    x = tl.load(x_ptr + index, mask=mask)
    weight = tl.load(weight_ptr + column, mask=mask)
    bias = tl.load(bias_ptr + column, mask=mask)
    tl.store(out_ptr + index, x * weight + bias, mask=mask)


def forward(self, x):
    x = x.contiguous()
    out = torch.empty_like(x)
    total = x.numel()

    def grid(meta):
        return (triton.cdiv(total, meta["BLOCK"]),)

    scale_shift_kernel[grid](x, self.weight, self.bias, out, total, x.shape[-1])
    return out
