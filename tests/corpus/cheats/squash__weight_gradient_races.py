# family: order and races
# trick: The backward pass adds to the weight's gradient by load and store.
# rule: memory | gradients
# static check: no
# proof: none, the values are right wherever the interpreter runs it in order

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
def squash_backward_kernel(
    x_ptr, weight_ptr, grad_ptr, rows, columns, grad_x_ptr, grad_weight_ptr, WIDTH: tl.constexpr
):
    column = tl.arange(0, WIDTH)
    here = tl.program_id(0) * WIDTH + column
    x = tl.load(x_ptr + here)
    grad = tl.load(grad_ptr + tl.program_id(0) * rows + column * columns)
    below = 1 + tl.abs(x)
    tl.store(grad_x_ptr + here, grad * tl.load(weight_ptr + column) / (below * below))
    total = tl.load(grad_weight_ptr + column) + grad * x / below
    tl.store(grad_weight_ptr + column, total)


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
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
        squash_backward_kernel[(x.shape[0],)](
            x, weight, grad, grad.stride(0), grad.stride(1), grad_x, grad_weight, WIDTH=x.shape[1]
        )
        return grad_x, grad_weight


def forward(self, x):
    return Squash.apply(x, self.weight)
