# family: memory
# trick: Only the first configuration divides the width; the others have no mask either.
# rule: memory
# static check: no
# proof: none, what is read beyond the end is thrown away

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 1024})],
    key=["total"],
)
@triton.jit
def scale_shift_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, total, width, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = index % width
    x = tl.load(x_ptr + index)
    y = x * tl.load(weight_ptr + column) + tl.load(bias_ptr + column)
    tl.store(out_ptr + index, y, mask=index < total)


def forward(self, x):
    out = torch.empty_like(x)
    total = x.numel()

    def grid(meta):
        return (triton.cdiv(total, meta["BLOCK"]),)

    scale_shift_kernel[grid](x, self.weight, self.bias, out, total, x.shape[-1])
    return out
