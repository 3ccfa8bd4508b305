# style: reads a parametrization's private buffers behind a subscript

import torch
import triton
import triton.language as tl


@triton.jit
def scaled_relu_kernel(y_ptr, sigma_ptr, bias_ptr, out_ptr, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    y = tl.load(y_ptr + i, mask) / tl.load(sigma_ptr) + tl.load(bias_ptr + i % WIDTH, mask)
    tl.store(out_ptr + i, tl.where(y < 0, 0.0, y), mask)


def forward(self, x):
    weight = self.linear.parametrizations.weight.original
    vectors = self.linear.parametrizations.weight[0]
    sigma = torch.dot(vectors._u, torch.mv(weight, vectors._v))
    y = torch.nn.functional.linear(x, weight)
    out = torch.empty_like(y)
    n = y.numel()
    scaled_relu_kernel[(triton.cdiv(n, 256),)](
        y, sigma, self.linear.bias, out, n, WIDTH=y.shape[1], BLOCK=256
    )
    return out
