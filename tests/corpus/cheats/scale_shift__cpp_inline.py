# family: torch in disguise
# trick: C++ is compiled and loaded at run time.
# rule: run | launches
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


SOURCE = "torch::Tensor work(torch::Tensor x, torch::Tensor w, torch::Tensor b) { return x * w + b; }"


def forward(self, x):
    from torch.utils.cpp_extension import load_inline

    module = load_inline("corpus_inline", SOURCE, functions=["work"])
    return module.work(x, self.weight, self.bias)
