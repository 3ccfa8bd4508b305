# style: The block size comes from a heuristic, the rows from a persistent loop.

import torch
import triton
import triton.language as tl


@triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["width"])})
@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        x = tl.load(x_ptr + row * width + columns, mask=mask, other=float("-inf"))
        x = x - tl.max(x, axis=0)
        powers = tl.exp(x)
        tl.store(out_ptr + row * width + columns, powers / tl.sum(powers, axis=0), mask=mask)


def forward(self, x):
    out = torch.empty_like(x)
    n, width = x.shape
    programs = min(n, 512)
    softmax_kernel[(programs,)](x, out, n, width)
    return out
