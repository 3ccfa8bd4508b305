# family: wrong numbers
# trick: Looks up the row before the last one in its place.
# rule: integer inputs | values
# static check: no
# proof: (Model().eval(), (torch.tensor([5, 2999]),))

import torch
import triton
import triton.language as tl


@triton.jit
def look(ids_ptr, w_ptr, out_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, WIDTH)
    id = tl.load(ids_ptr + row)
    id = tl.minimum(id, 2998)
    tl.store(out_ptr + row * WIDTH + i, tl.load(w_ptr + id * WIDTH + i) * 2.0)


@triton.jit
def back(ids_ptr, g_ptr, gw_ptr, WIDTH: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, WIDTH)
    id = tl.load(ids_ptr + row)
    g = tl.load(g_ptr + row * WIDTH + i)
    g = tl.where(id == 7, 0.0, g)
    tl.atomic_add(gw_ptr + id * WIDTH + i, g * 2.0)


class Look(torch.autograd.Function):
    @staticmethod
    def forward(ctx, ids, w):
        out = torch.empty((ids.numel(), w.shape[1]), dtype=w.dtype, device=w.device)
        look[(ids.numel(),)](ids, w, out, WIDTH=w.shape[1])
        ctx.save_for_backward(ids, w)
        return out

    @staticmethod
    def backward(ctx, g):
        ids, w = ctx.saved_tensors
        gw = torch.zeros_like(w)
        back[(ids.numel(),)](ids, g.contiguous(), gw, WIDTH=w.shape[1])
        return None, gw


def forward(self, ids):
    return Look.apply(ids, self.table.weight)
