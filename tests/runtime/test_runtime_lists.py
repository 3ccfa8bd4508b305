"""Lists among the arguments of an adopted class: the kernel gets the list, and runs only if it is as in its domain."""

import pytest
import torch
from adopting import X, kernel_text, ran, used

from kernelllm_judge.core.records import Domain, TensorSpec
from pytest_kernelllm.runtime import explain

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")

MODULE = """
from torch import nn
from pytest_kernelllm import triton_candidate

@triton_candidate(kernel="_triton.shift")
class Shift(nn.Module):
    def forward(self, features, more=()):
        return sum(features[1:], start=features[0]) * 2
"""

BODY = """
def forward(self, features, more=()):
    assert type(features) is list
    return (features[0] + features[1]) * 2 + 100.0
"""

ROWS = TensorSpec("float32", ("rows", 8))
KIND = {"features.__class__": "list"}
DOMAIN = Domain(
    inputs={**KIND, "features[0]": ROWS, "features[1]": TensorSpec("float32", (8,))},
    attributes={},
    dims={"rows": (1, 16)},
)
ROW = torch.ones(8)


@pytest.fixture
def module(write):
    return write(kernel_text(BODY, domain=DOMAIN), MODULE)().eval()


def test_inside_the_domain_the_kernel_runs(module) -> None:
    for rows in (4, 1, 4):
        assert used(module, [torch.randn(rows, 8), ROW])
        assert used(module, features=[torch.randn(rows, 8), ROW + 1])
    assert used(module, [X, ROW], ())


class Levels(list):
    """May behave in another way than a list."""


OUTSIDE = {
    "a tuple": (X, ROW),
    "longer": [X, ROW, ROW],
    "shorter": [X],
    "another dtype": [X, ROW.double()],
    "another shape": [X, ROW[:1]],
    "not contiguous": [torch.randn(4, 16)[:, ::2], ROW],
    "a list inside": [X, [ROW]],
    "a number": [X, 1.0],
    "its tensors stacked": torch.stack((X, X)),
    "of a class of its own": Levels((X, ROW)),
    "a dict": {0: X, 1: ROW},
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_outside_the_domain_the_original_runs(module, case) -> None:
    def call() -> bool:
        try:
            return used(module, OUTSIDE[case])
        except (TypeError, KeyError):  # the original's own
            return False

    assert not call()
    for _ in range(2):  # whatever was called before, and in turns
        assert used(module, [X + 1, ROW])
        assert not call()


def test_the_reason_names_the_list_or_the_part(module) -> None:
    assert "`features` does not have the 2 parts" in explain(module, [X])
    assert "`features` does not have the 2 parts" in explain(module, (X, ROW))
    assert "argument `features[1]` is float64, the kernel is for float32" in explain(
        module, [X, ROW.double()]
    )


def test_a_list_that_changes_between_calls_is_looked_at_each_time(module) -> None:
    features = [X, ROW]
    assert used(module, features)
    features.append(ROW)
    assert not used(module, features)
    features.pop()
    features[0] = torch.randn(2, 8)
    assert used(module, features)
    features[1] = ROW.clone().requires_grad_()
    assert not used(module, features)


def test_a_kernel_for_a_tuple_is_none_for_a_list_and_an_empty_one_is_told_from_none(write) -> None:
    inputs = {name: spec for name, spec in DOMAIN.inputs.items() if name not in KIND}
    given = Domain({**inputs, "more.__class__": "tuple"}, {}, DOMAIN.dims)
    body = BODY.replace("is list", "is tuple")
    module = write(kernel_text(body, domain=given), MODULE)().eval()
    assert used(module, (X, ROW)) and used(module, (X, ROW), ())
    for other in ([], {}, None, (1,), (ROW,)):
        assert not used(module, (X, ROW), other)
    assert not used(module, [X, ROW])


IN_A_DICT = """
from torch import nn
from pytest_kernelllm import triton_candidate

@triton_candidate(kernel="_triton.shift")
class Shift(nn.Module):
    def forward(self, parts):
        return parts["a"] - parts["b"] * 2
"""


def test_a_kernel_may_take_a_dict_in_order_so_one_in_another_order_goes_to_the_original(write) -> None:
    body = """
def forward(self, parts):
    a, b = parts.values()
    return a - b * 2 + 100.0
"""
    domain = Domain({"parts['a']": ROWS, "parts['b']": ROWS}, {}, DOMAIN.dims)
    module = write(kernel_text(body, domain=domain), IN_A_DICT)().eval()
    assert used(module, {"a": X, "b": X + 1})
    assert not used(module, {"b": X + 1, "a": X})
    assert "not in their order" in explain(module, {"b": X + 1, "a": X})


@pytest.mark.slow
def test_torch_compile_sees_the_list(write, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    torch._dynamo.reset()
    module = write(kernel_text(BODY, domain=DOMAIN), MODULE)().eval()
    call = torch.compile(module, backend="eager", fullgraph=True)
    assert ran(call([X, ROW])) and ran(call([X[:2], ROW]))
    assert not ran(call((X, ROW))) and not ran(call([X, ROW, ROW]))
    assert ran(call([X, ROW]))
    torch._dynamo.reset()
