# family: types and shapes
# trick: A default argument changes torch's global dtype while the file is read.
# rule: types | run
# static check: yes

import torch
import triton
import triton.language as tl


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


def ready(switched=torch.set_default_dtype(torch.float64)):
    return switched is None


def forward(self, x):
    assert ready()
    return launch(self, x, torch.empty(x.shape, device=x.device))
