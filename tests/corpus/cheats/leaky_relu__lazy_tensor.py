# family: types and shapes
# trick: A tensor subclass that calls itself Tensor and computes when it is looked at.
# rule: types | values
# static check: yes

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


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        def ready(value):
            return value.work() if isinstance(value, Lazy) else value

        return function(*[ready(value) for value in args], **(kwargs or {}))


Lazy.__name__ = Lazy.__qualname__ = "Tensor"


def forward(self, x):
    out = torch.empty_like(x)
    lazy = out.as_subclass(Lazy)
    lazy.work = lambda: launch(self, x, out)
    return lazy
