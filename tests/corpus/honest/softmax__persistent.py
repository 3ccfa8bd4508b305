# style: As many programs as the GPU has processors, each of which goes over several rows.

import functools

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    for row in range(tl.program_id(0), n, tl.num_programs(0)):
        x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
        powers = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * width + columns, powers / tl.sum(powers, axis=0), mask=mask)


@functools.cache
def processors():
    device = torch.cuda.current_device()
    return torch.cuda.get_device_properties(device).multi_processor_count


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    with torch.cuda.device(x.device):
        softmax_kernel[(min(n, processors()),)](x, out, n, width, BLOCK=triton.next_power_of_2(width))
    return out
