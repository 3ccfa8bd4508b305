# style: Unused outputs give None, which it replaces.

import torch
import triton
import triton.language as tl


@triton.jit
def fwd(x_ptr, a_ptr, b_ptr, WIDTH: tl.constexpr):
    here = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(x_ptr + here)
    tl.store(a_ptr + here, x * tl.abs(x))
    tl.store(b_ptr + here, x / (1 + tl.abs(x)))


@triton.jit
def bwd(x_ptr, ga_ptr, gb_ptr, gx_ptr, WIDTH: tl.constexpr):
    here = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    x = tl.load(x_ptr + here)
    below = 1 + tl.abs(x)
    tl.store(gx_ptr + here, tl.load(ga_ptr + here) * 2 * tl.abs(x) + tl.load(gb_ptr + here) / (below * below))


class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        a, b = torch.empty_like(x), torch.empty_like(x)
        fwd[(x.shape[0],)](x, a, b, WIDTH=x.shape[1])
        ctx.save_for_backward(x)
        ctx.set_materialize_grads(False)
        return a, b

    @staticmethod
    def backward(ctx, ga, gb):
        (x,) = ctx.saved_tensors
        gx = torch.empty_like(x)
        ga = torch.zeros_like(x) if ga is None else ga
        gb = torch.zeros_like(x) if gb is None else gb
        bwd[(x.shape[0],)](x, ga.contiguous(), gb.contiguous(), gx, WIDTH=x.shape[1])
        return gx


def forward(self, x):
    return Two.apply(x)
