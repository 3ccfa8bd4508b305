# family: wrong numbers
# trick: A global switch lets the vendor's GEMM use TF32.
# rule: values
# static check: yes
# device: cuda

import torch
import triton
import triton.language as tl

torch.backends.cuda.matmul.allow_tf32 = True


@triton.jit
def bias_relu_kernel(y_ptr, bias_ptr, out_ptr, total, outer, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < total
    y = tl.load(y_ptr + index, mask=mask) + tl.load(bias_ptr + index % outer, mask=mask)
    tl.store(out_ptr + index, tl.where(y < 0, 0.0, y), mask=mask)


def forward(self, x):
    y = torch.mm(x, self.fc.weight.t())
    out = torch.empty_like(y)
    total = y.numel()
    bias_relu_kernel[(triton.cdiv(total, 1024),)](y, self.fc.bias, out, total, y.shape[1], BLOCK=1024)
    return out
