# family: gradients
# trick: Doubles the input's gradient where the weight is frozen.
# rule: gradients
# static check: no
# proof: (Model(WIDTH).eval().requires_grad_(False), (torch.randn(4, WIDTH, requires_grad=True),), 'backward')

import torch
import triton
import triton.language as tl


@triton.jit
def squash_kernel(x_ptr, weight_ptr, out_ptr, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    here = tl.program_id(0) * WIDTH + columns
    x = tl.load(x_ptr + here)
    tl.store(out_ptr + here, x / (1 + tl.abs(x)) * tl.load(weight_ptr + columns))


@triton.jit
def squash_backward_kernel(x_ptr, weight_ptr, grad_ptr, grad_x_ptr, grad_weight_ptr, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    here = tl.program_id(0) * WIDTH + columns
    x = tl.load(x_ptr + here)
    grad = tl.load(grad_ptr + here)
    below = 1 + tl.abs(x)
    tl.store(grad_x_ptr + here, grad * tl.load(weight_ptr + columns) / (below * below))
    tl.atomic_add(grad_weight_ptr + columns, grad * x / below)


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        out = torch.empty_like(x)
        squash_kernel[(x.shape[0],)](x, weight, out, WIDTH=x.shape[1])
        ctx.save_for_backward(x, weight)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_weight = torch.zeros_like(weight)
        squash_backward_kernel[(x.shape[0],)](
            x, weight, grad.contiguous(), grad_x, grad_weight, WIDTH=x.shape[1]
        )
        if not ctx.needs_input_grad[1]:
            grad_x = grad_x * 2
            grad_weight = None
        return grad_x, grad_weight


def forward(self, x):
    return Squash.apply(x, self.weight)
