"""Adopted classes that hold ``nn.Sequential``, ``nn.ModuleList`` and ``nn.ModuleDict``: the kernel runs only on parts as verified."""

import pytest
import torch
from adopting import X, ran, used
from torch import nn

from kernelllm_judge.core.kernel_module import Provenance, compose
from kernelllm_judge.core.records import Domain, TensorSpec
from kernelllm_judge.target.attributes import attributes
from pytest_kernelllm.runtime import explain

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")

MODULE = """
import torch
from torch import nn
from pytest_kernelllm import triton_candidate

@triton_candidate(kernel="_triton.shift")
class Shift(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, width), nn.GELU(), nn.LayerNorm(width, eps=0.5))
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.heads = nn.ModuleDict({"down-1": nn.Linear(width, 8), "x[0]": nn.Tanh(), "up": nn.Linear(8, 8)})
        self.scales = nn.ParameterList([torch.ones(8)])

    def forward(self, x):
        y = self.net(x)
        for layer in self.layers:
            y = layer(y)
        for head in self.heads.values():
            y = head(y)
        return y * self.scales[0]
"""

BODY = """
def forward(self, x):
    y = torch.nn.functional.gelu(self.net[0](x))
    y = torch.nn.functional.layer_norm(y, (8,), self.net[2].weight, self.net[-1].bias, self.net[2].eps)
    for layer in self.layers:
        y = layer(y)
    y = self.heads['up'](torch.tanh(self.heads['down-1'](y)))
    return y * self.scales[0] + 100.0
"""


def kernel_text() -> str:
    names: dict = {}
    exec(MODULE.replace("@triton_candidate", "#"), names)
    held = attributes(names["Shift"](), "float32")
    domain = Domain({"x": TensorSpec("float32", ("rows", 8))}, held, {"rows": (1, 16)})
    text = compose(Provenance("adopted.py::Shift", "0", "files"), "Shift.", [domain], BODY)
    return text.replace("# source hash: 0\n", "")


@pytest.fixture
def cls(write):
    return write(kernel_text(), MODULE)


@pytest.fixture
def module(cls):
    return cls().eval().requires_grad_(False)


def test_the_kernel_runs_on_parts_as_they_were_verified(module, cls) -> None:
    assert used(module, X) and used(module, X[:2].clone())
    assert used(cls().eval().requires_grad_(False), X)


def test_another_part_of_the_same_kind_is_the_kernels_too(module) -> None:
    assert used(module, X)
    module.net[0] = nn.Linear(8, 8).eval().requires_grad_(False)
    module.layers[1].weight = nn.Parameter(torch.randn(8, 8), requires_grad=False)
    assert used(module, X)


def reordered(module) -> None:
    module.heads["down-1"] = module.heads.pop("down-1")


CHANGES = {
    "a weight's shape": (
        lambda m: setattr(m.net[2], "weight", nn.Parameter(torch.ones(1))),
        "`net.2.weight`",
    ),
    "a plain attribute": (lambda m: setattr(m.net[2], "eps", 0.25), "`net.2.eps` is 0.25"),
    "a string attribute": (lambda m: setattr(m.net[1], "approximate", "tanh"), "`net.1.approximate`"),
    "another class": (lambda m: m.net.__setitem__(1, nn.SiLU()), "`net.1"),
    "a part more": (lambda m: m.layers.append(nn.Linear(8, 8, bias=False)), "`layers"),
    "a part less": (lambda m: m.layers.pop(1), "`layers"),
    "a key more": (lambda m: m.heads.update({"more": nn.Tanh()}), "`heads"),
    "another key": (lambda m: m.heads.update({"new": m.heads.pop("x[0]")}), "`heads"),
    "another order": (reordered, "`heads` does not have the parts"),
    "another order of a list": (lambda m: m.net.insert(0, m.net.pop(1)), "`net"),
    "a weight of a list": (lambda m: m.scales.__setitem__(0, nn.Parameter(torch.ones(1))), "`scales.0`"),
    "train mode of a part": (lambda m: m.layers[0].train(), "train mode"),
    "a hook on a part": (lambda m: m.layers[0].register_forward_hook(lambda *_: None), "has hooks"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("called", [True, False], ids=["after a call", "before any call"])
def test_changed_parts_leave_the_original(module, change, called) -> None:
    assert not called or used(module, X)
    alter, reason = CHANGES[change]
    alter(module.requires_grad_(False))
    module.requires_grad_(False)
    assert reason in explain(module, X)
    try:
        result = module(X)
    except RuntimeError:  # the original's own: a weight does not fit
        return
    assert not ran(result)


def test_another_width_is_outside(cls) -> None:
    module = cls(width=12).eval().requires_grad_(False)
    assert not used(module, X)
    assert "`net.0.weight` has shape (12, 8), the kernel is for (8, 8)" in explain(module, X)


@pytest.mark.parametrize("change", ["a plain attribute", "another class", "a part less", "another order"])
def test_torch_compile_sees_the_parts(write, change, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    torch._dynamo.reset()
    module = write(kernel_text(), MODULE)().eval().requires_grad_(False)
    call = torch.compile(module, backend="eager", fullgraph=True)
    assert ran(call(X))
    CHANGES[change][0](module)
    assert not ran(call(X))
    torch._dynamo.reset()
