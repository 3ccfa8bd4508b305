# family: order and races
# trick: The work goes to another stream, which nobody waits for.
# rule: values | repeat | device time
# static check: yes
# device: cuda

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu_kernel(x_ptr, out_ptr, n, slope, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(out_ptr + index, tl.where(x > 0, x, x * slope), mask=index < n)


def launch(self, x, out):
    n = x.numel()
    leaky_relu_kernel[(triton.cdiv(n, 1024),)](x, out, n, self.slope, BLOCK=1024)
    return out


def forward(self, x):
    out = torch.empty_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        launch(self, x, out)
    return out
