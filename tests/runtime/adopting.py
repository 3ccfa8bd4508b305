"""A module with an adopted kernel that adds 100, so that a test can tell which of the two ran."""

import torch
from torch import nn

from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import Domain, TensorSpec
from pytest_kernelllm.runtime import explain

MODULE = '''
from typing import Optional
import torch
from torch import nn
from pytest_kernelllm import triton_candidate

def plain(x):
    return x

class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.ones(8))

@triton_candidate(kernel="_triton.shift")
class Shift(nn.Module):
    limit = 3
    def __init__(self, eps=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.eps = eps
        self.stride = (1, 2)
        self.sizes = [1, 2]
        self.act = nn.functional.relu
        self.inner = Inner()

    def helper(self, x):
        return x

    @staticmethod
    def fixed(x):
        return x

    @classmethod
    def made(cls):
        return cls()

    def forward(self, x, scale: float = 1.0, mask: Optional[torch.Tensor] = None):
        """Original."""
        return plain(self.helper(x)) * self.weight * scale + self.inner.bias + self.eps
'''


BODY = """
@triton.jit
def shift_kernel(x, w, b, out, eps, n, columns: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    y = tl.load(x + i, mask=m) * tl.load(w + i % columns, mask=m) + tl.load(b + i % columns, mask=m)
    tl.store(out + i, y + eps + 100.0, mask=m)


def forward(self, x, scale=1.0, mask=None):
    out = torch.empty_like(x)
    n = x.numel()
    grid = (triton.cdiv(n, 64),)
    shift_kernel[grid](x, self.weight, self.inner.bias, out, self.eps, n, columns=8, BLOCK=64)
    return out
"""


# The same without Triton, whose interpreter serves one thread and cannot be traced.
TORCH_BODY = """
def forward(self, x, scale=1.0, mask=None):
    return x * self.weight + self.inner.bias + self.eps + 100.0
"""

DOMAIN = Domain(
    inputs={"x": TensorSpec("float32", ("rows", 8))},
    attributes={
        "weight": TensorSpec("float32", (8,)),
        "inner.bias": TensorSpec("float32", (8,)),
        "inner.__class__": "adopted.Inner",
        "eps": 0.5,
        "limit": 3,
        "stride[1]": 2,
        "sizes[0]": 1,
        "act": "torch.nn.functional.relu",
    },
    dims={"rows": (1, 16)},
)


X = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))


def kernel_text(body: str = BODY, source_hash: str = "", domain: Domain = DOMAIN) -> str:
    text = compose(Provenance("adopted.py::Shift", source_hash or "0", "files"), "Shift.", [domain], body)
    return text if source_hash else text.replace("# source hash: 0\n", "")


def used(module: nn.Module, *args, **kwargs) -> bool:
    """Whether the kernel ran. Asserts that the result is right and that ``explain`` says so beforehand."""
    told = explain(module, *args, **kwargs)
    result = module(*args, **kwargs)
    expected = type(module).forward.__kernelllm_original__(module, *args, **kwargs)
    ran = bool((result - expected).abs().max() > 50)
    assert torch.allclose(result - (100 if ran else 0), expected, atol=1e-3)
    assert ("runs the kernel _triton.shift" in told) == ran, told
    return ran


def ran(result: torch.Tensor) -> bool:
    """Whether it was the kernel that made this."""
    return bool(result.abs().max() > 50)


def widen(module):
    module.inner.extra = nn.Linear(1, 1)


CHANGES = {
    "scalar": lambda m: setattr(m, "eps", 0.25),
    "scalar of another type": lambda m: setattr(m, "eps", 1),
    "item of a tuple": lambda m: setattr(m, "stride", (1, 3)),
    "item of a list": lambda m: m.sizes.__setitem__(0, 7),
    "list shortened": lambda m: m.sizes.clear(),
    "function": lambda m: setattr(m, "act", torch.tanh),
    "class attribute": lambda m: setattr(m, "limit", 4),
    "parameter replaced by another shape": lambda m: setattr(m, "weight", nn.Parameter(torch.ones(1))),
    "parameter changed in place": lambda m: (
        m.weight.data.__class__ and setattr(m.weight, "data", torch.ones(1))
    ),
    "module cast": lambda m: m.double(),
    "submodule cast": lambda m: m.inner.double(),
    "train": lambda m: m.train(),
    "train, a submodule only": lambda m: m.inner.train(),
    "submodule of another class": lambda m: setattr(
        m.inner, "__class__", type("Other", (type(m.inner),), {})
    ),
    "submodule added": widen,
    "parameter added": lambda m: m.inner.register_parameter("more", nn.Parameter(torch.ones(1))),
    "hook on a submodule": lambda m: m.inner.register_forward_hook(lambda *_: None),
    "forward replaced on a submodule": lambda m: setattr(m.inner, "forward", lambda x: x),
    "method replaced on the instance": lambda m: setattr(m, "helper", lambda x: x),
    "method replaced by another's": lambda m: setattr(m, "helper", type(m)().helper.__get__(m)),
    "static method replaced": lambda m: setattr(m, "fixed", lambda x: x),
    "class method replaced": lambda m: setattr(m, "made", lambda: None),
    "a gradient wanted": lambda m: m.weight.requires_grad_(),
}
