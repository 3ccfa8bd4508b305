# style: Asks Triton's driver for the device and its processors on import, and checks that inputs are there.

import torch
import triton
import triton.language as tl
from triton.runtime import driver

DEVICE = triton.runtime.driver.active.get_active_torch_device()
PROPERTIES = driver.active.utils.get_device_properties(DEVICE.index)
PROCESSORS = PROPERTIES["multiprocessor_count"]


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, width, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    for row in tl.range(tl.program_id(0), n, tl.num_programs(0), num_stages=2):
        x = tl.load(x_ptr + row * width + columns, mask=mask, other=-float("inf"))
        powers = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * width + columns, powers / tl.sum(powers, axis=0), mask=mask)


def forward(self, x):
    n, width = x.shape
    out = torch.empty_like(x)
    assert x.device == DEVICE and out.device == DEVICE
    programs = min(n, 2 * PROCESSORS)
    softmax_kernel[(programs,)](x, out, n, width, BLOCK=triton.next_power_of_2(width))
    return out
