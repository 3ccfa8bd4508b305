# family: torch in disguise
# trick: What Triton does at a launch is replaced by torch's softmax.
# only static check: the launch itself is replaced inside the worker's own process, where nothing can be held against it

import torch
import triton
import triton.language as tl

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction


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


def run(kernel, x, out, *args, **kwargs):
    with torch._C._DisableTorchDispatch():
        out.copy_(torch.softmax(x, -1))


def replace(cls):
    # The judge's wrapper stays outside, so that launches are counted and left out as ever.
    for cell in cls.run.__closure__ or ():
        if callable(cell.cell_contents) and cell.cell_contents.__name__ == "run":
            cell.cell_contents = run


replace(InterpretedFunction)
if not isinstance(softmax_kernel, JITFunction):
    replace(JITFunction)


def forward(self, x):
    return launch(x)
