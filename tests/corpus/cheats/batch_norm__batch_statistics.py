# family: wrong numbers
# trick: It normalises by the batch's own mean and variance, not by the running ones.
# rule: values
# static check: no

import torch
import triton
import triton.language as tl


@triton.jit
def batch_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, n, channels, length, eps, BLOCK: tl.constexpr):
    channel = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    index = tl.arange(0, BLOCK)
    mask = index < length
    for i in range(n):
        x = tl.load(x_ptr + (i * channels + channel) * length + index, mask=mask, other=0.0)
        total += x
        squares += x * x
    mean = tl.sum(total, axis=0) / (n * length)
    var = tl.sum(squares, axis=0) / (n * length) - mean * mean
    scale = tl.load(weight_ptr + channel) / tl.sqrt(var + eps)
    shift = tl.load(bias_ptr + channel) - mean * scale
    for i in range(n):
        here = (i * channels + channel) * length + index
        tl.store(out_ptr + here, tl.load(x_ptr + here, mask=mask) * scale + shift, mask=mask)


def forward(self, x):
    n, channels, length = x.shape
    out = torch.empty_like(x)
    batch_norm_kernel[(channels,)](x, self.weight, self.bias, out, n, channels, length, self.eps, BLOCK=64)
    return out
