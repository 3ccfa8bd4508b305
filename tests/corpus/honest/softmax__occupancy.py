# style: Compiles first, and launches as many programs as fit on the GPU by registers and shared memory.

import torch
import triton
import triton.language as tl
from triton.runtime import driver

DEVICE = driver.active.get_active_torch_device()
PROPERTIES = driver.active.utils.get_device_properties(DEVICE.index)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    for row in tl.range(tl.program_id(0), n, tl.num_programs(0)):
        x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
        powers = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * width + columns, powers / tl.sum(powers, axis=0), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    kernel = softmax_kernel.warmup(x, out, n, width, BLOCK=block, num_warps=4, grid=(1,))
    kernel._init_handles()
    by_registers = PROPERTIES["max_num_regs"] // (kernel.n_regs * PROPERTIES["warpSize"] * 4)
    by_memory = PROPERTIES["max_shared_mem"] // max(kernel.metadata.shared, 1)
    programs = PROPERTIES["multiprocessor_count"] * max(1, min(by_registers, by_memory))
    kernel[(min(programs, n), 1, 1)](x, out, n, width, block)
    return out
