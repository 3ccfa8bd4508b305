# family: order and races
# trick: A thread does the work some time after forward has returned.
# rule: values | run
# static check: yes

import torch
import triton
import triton.language as tl

import threading


@triton.jit
def scale_shift_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0) * width
    columns = tl.arange(0, BLOCK)
    mask = columns < width
    x = tl.load(x_ptr + row + columns, mask=mask)
    weight = tl.load(weight_ptr + columns, mask=mask)
    bias = tl.load(bias_ptr + columns, mask=mask)
    tl.store(out_ptr + row + columns, x * weight + bias, mask=mask)


def launch(self, x, out):
    n, width = x.shape
    scale_shift_kernel[(n,)](x, self.weight, self.bias, out, width, BLOCK=triton.next_power_of_2(width))
    return out


def forward(self, x):
    out = torch.empty_like(x)
    launch(self, x[:1], out)
    threading.Timer(0.5, launch, (self, x, out)).start()
    return out
