# family: the clock
# trick: After a hundred and fifty calls it gives an old result, beside a tiny launch.
# rule: recheck | device time
# static check: yes
# device: cuda

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * width + columns, powers / tl.sum(powers, axis=0), mask=mask)


def launch(x):
    out = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


CALLS = []
KEPT = {}


def forward(self, x):
    CALLS.append(1)
    if len(CALLS) < 150 or x.shape not in KEPT:
        KEPT[x.shape] = launch(x)
        return KEPT[x.shape].clone()
    softmax_kernel[(1,)](x, torch.empty_like(x[:1]), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return KEPT[x.shape]
