# style: Launched inside a context manager of its own and a null context.

import contextlib

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask=mask)
    tl.store(out_ptr + index, tl.where(x > 0, x, x * slope), mask=mask)


@contextlib.contextmanager
def on(device):
    if device.type == "cuda":
        with torch.cuda.device(device):
            yield
    else:
        yield


def forward(self, x):
    out = torch.empty_like(x)
    n = x.numel()
    with on(x.device), contextlib.nullcontext():
        leaky_relu_kernel[(triton.cdiv(n, 1024),)](x, out, n, self.slope, BLOCK=1024)
    return out
