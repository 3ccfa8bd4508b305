import warnings
from dataclasses import replace

import pytest
import torch
from adopting import CHANGES, DOMAIN, X, kernel_text, used
from torch import nn

from kernelllm_runtime.domain import same_value
from pytest_kernelllm.runtime import explain

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")


def test_inside_the_domain_the_kernel_runs(module) -> None:
    for rows in (4, 1, 16, 4):
        assert used(module, torch.randn(rows, 8))
    assert used(module, x=X)
    assert used(module, X, scale=1.0, mask=None)


OUTSIDE_CALLS = {
    "rows above the range": ((torch.randn(17, 8),), {}),
    "another rank": ((torch.randn(2, 4, 8),), {}),
    "another dtype": ((X.double(),), {}),
    "not contiguous": ((torch.randn(4, 16)[:, ::2],), {}),
    "a value that is no default": ((X,), {"scale": 2.0}),
    "an int for a float": ((X,), {"scale": 1}),
    "a subclass of Tensor": ((X.as_subclass(type("Sub", (torch.Tensor,), {})),), {}),
    "wanting a gradient": ((X.clone().requires_grad_(),), {}),
}


@pytest.mark.parametrize("case", OUTSIDE_CALLS)
def test_outside_the_domain_the_original_runs(module, case) -> None:
    args, kwargs = OUTSIDE_CALLS[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not used(module, *args, **kwargs)
        assert not used(module, *args, **kwargs)
    assert used(module, X)


def test_tensors_that_start_at_odd_addresses_are_left_to_the_original(write) -> None:
    module = write(kernel_text(domain=replace(DOMAIN, aligned=True)))().eval().requires_grad_(False)
    moved = torch.randn(33)[1:].view(4, 8)
    assert used(module, X)
    for _ in range(2):
        assert not used(module, moved)
        assert used(module, X)
    assert "`x` does not start at a multiple of 16 bytes" in explain(module, moved)
    module.weight.data = torch.ones(9)[1:]
    assert not used(module, X)


def test_tensors_may_start_anywhere_unless_the_domain_says_otherwise(module) -> None:
    assert used(module, torch.randn(33)[1:].view(4, 8))


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_module_is_noticed_after_the_kernel_ran(module, change) -> None:
    assert used(module, X)
    CHANGES[change](module)
    assert not used(module, X)


@pytest.mark.parametrize(
    ("listed", "actual", "same"),
    [
        (0.0, 0.0, True),
        (0.0, -0.0, False),
        (-0.0, -0.0, True),
        (0.0, 0, False),
        (0, False, False),
        (float("nan"), float("nan"), True),
        ("", "", True),
    ],
)
def test_values_are_the_same_in_sign_and_type(listed, actual, same) -> None:
    assert same_value(listed, actual) is same


def test_grad_mode_counts_only_where_a_gradient_is_wanted(module) -> None:
    module.requires_grad_(True)
    assert not used(module, X)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert used(module, X)
    x = X.clone().requires_grad_()
    module(x).sum().backward()
    assert x.grad is not None


def test_meta_tensors(module) -> None:
    assert module.to("meta")(X.to("meta")).device.type == "meta"


def test_explain_a_module_without_kernel() -> None:
    assert explain(nn.Linear(1, 1), X) == "Linear runs its own forward: no kernel is adopted for it."


def test_cpu_tensors_need_the_switch_and_import_no_kernel(write, monkeypatch) -> None:
    monkeypatch.delenv("KERNELLLM_INTERPRET")
    cls = write(kernel_text())
    module = cls().eval().requires_grad_(False)
    assert not used(module, X)
    assert "is on cpu, the kernel runs on cuda" in explain(module, X)
    assert "forward" not in vars(cls.forward.__kernelllm_dispatcher__.kernel)


def test_disabled(write, monkeypatch) -> None:
    monkeypatch.setenv("KERNELLLM_DISABLE", "1")
    module = write(kernel_text())().eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not used(module, X)
    assert "KERNELLLM_DISABLE" in explain(module, X)
