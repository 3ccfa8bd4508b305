# style: The stock layer called as it is, ReLU in place on its output by a kernel.

import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(y_ptr, total, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(y_ptr + index, mask=index < total)
    y = tl.maximum(y, tl.zeros_like(y), propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + index, y, mask=index < total)


def forward(self, x):
    y = self.fc(x)
    relu_kernel[(triton.cdiv(y.numel(), 512),)](y, y.numel(), BLOCK=512)
    return y
