import torch
import triton
import triton.language as tl


@triton.jit
def int4_linear_kernel(
    x_ptr,
    packed_ptr,
    scale_ptr,
    zero_ptr,
    out_ptr,
    rows,
    OUT: tl.constexpr,
    WIDTH: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for group in range(WIDTH // GROUP):
        depth = group * GROUP + tl.arange(0, GROUP)
        x = tl.load(x_ptr + row * WIDTH + depth[None, :], row < rows, other=0.0)
        byte = tl.load(packed_ptr + column * (WIDTH // 2) + (depth // 2)[:, None])
        code = ((byte >> ((depth % 2) * 4)[:, None].to(tl.uint8)) & 15).to(tl.float32)
        scale = tl.load(scale_ptr + column * (WIDTH // GROUP) + group)
        zero = tl.load(zero_ptr + column * (WIDTH // GROUP) + group)
        total += tl.dot(x, (code - zero) * scale, input_precision="ieee")
    tl.store(out_ptr + row * OUT + column, total, row < rows)


def forward(self, x):
    rows = x.shape[0]
    out = torch.empty((rows, 128), dtype=x.dtype, device=x.device)
    int4_linear_kernel[(triton.cdiv(rows, 16), 2)](
        x, self.packed, self.scale, self.zero, out, rows, OUT=128, WIDTH=256, GROUP=64, ROWS=16, COLUMNS=64
    )
    return out
