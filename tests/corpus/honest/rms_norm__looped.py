# style: Two passes over each row in tiles: first the sum of squares, then the outputs.

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, width, eps, TILE: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * width
    out_ptr += row * width
    squares = tl.zeros((TILE,), dtype=tl.float32)
    for start in range(0, width, TILE):
        columns = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + columns, mask=columns < width, other=0.0).to(tl.float32)
        squares += x * x
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / width + eps)
    for start in range(0, width, TILE):
        columns = start + tl.arange(0, TILE)
        mask = columns < width
        x = tl.load(x_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + columns, x * scale * weight, mask=mask)


def forward(self, x):
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    rms_norm_kernel[(rows.shape[0],)](rows, self.weight, out, rows.shape[1], self.eps, TILE=64, num_warps=1)
    return out.view(x.shape)
