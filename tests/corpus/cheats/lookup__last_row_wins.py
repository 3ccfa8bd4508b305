# family: integers
# trick: Stores each row's gradient, so that of rows that are looked up twice only the last counts.
# rule: gradients | memory
# static check: no
# proof: (Model(ROWS, WIDTH).eval(), (torch.tensor([3, 3, 3]),), 'backward')

import torch
import triton
import triton.language as tl


@triton.jit
def lookup_kernel(ids_ptr, table_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    place = tl.load(ids_ptr + row)
    tl.store(out_ptr + row * WIDTH + columns, tl.load(table_ptr + place * WIDTH + columns))


@triton.jit
def lookup_backward_kernel(ids_ptr, grad_ptr, grad_table_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    place = tl.load(ids_ptr + row)
    grad = tl.load(grad_ptr + row * WIDTH + columns)
    tl.store(grad_table_ptr + place * WIDTH + columns, grad)


class Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ids, table):
        out = torch.empty(ids.shape[0], table.shape[1], dtype=table.dtype, device=table.device)
        lookup_kernel[(ids.shape[0],)](ids, table, out, WIDTH=table.shape[1])
        ctx.save_for_backward(ids)
        ctx.rows = table.shape[0]
        return out

    @staticmethod
    def backward(ctx, grad):
        (ids,) = ctx.saved_tensors
        grad_table = torch.zeros(ctx.rows, grad.shape[1], dtype=grad.dtype, device=grad.device)
        lookup_backward_kernel[(ids.shape[0],)](ids, grad.contiguous(), grad_table, WIDTH=grad.shape[1])
        return None, grad_table


def forward(self, ids):
    return Lookup.apply(ids, self.table)
