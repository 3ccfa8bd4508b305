"""Kernels that were verified while TF32 was allowed do not run where it is not."""

from __future__ import annotations

import dataclasses

import adopting
import pytest
import torch
from adopting import DOMAIN, TORCH_BODY, X, kernel_text, ran, used

from kernelllm_runtime.pins.settings import CONVOLUTION_PRECISION, PRODUCT_PRECISION, TF32
from pytest_kernelllm.runtime import explain

pytestmark = [
    pytest.mark.usefixtures("restored_precision"),
    pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning"),
]


def adopted(write, *names: str, body: str = adopting.BODY) -> torch.nn.Module:
    pins = dict.fromkeys(names, TF32)
    domain = dataclasses.replace(DOMAIN, attributes={**DOMAIN.attributes, **pins})
    return write(kernel_text(body, domain=domain))().eval().requires_grad_(False)


def test_convolutions(write) -> None:
    module = adopted(write, CONVOLUTION_PRECISION)
    assert used(module, X)
    torch.backends.cudnn.allow_tf32 = False
    assert not used(module, X)
    assert "`torch.backends.cudnn.conv.fp32_precision` is" in explain(module, X)
    assert "the kernel is for tf32" in explain(module, X)
    torch.backends.cudnn.allow_tf32 = True
    assert used(module, X)


def test_products(write) -> None:
    torch.set_float32_matmul_precision("high")
    module = adopted(write, PRODUCT_PRECISION, CONVOLUTION_PRECISION)
    assert used(module, X)
    torch.set_float32_matmul_precision("highest")
    assert not used(module, X)


def test_other_kernels_do_not_ask(write) -> None:
    module = adopted(write)
    torch.backends.cudnn.allow_tf32 = False
    assert used(module, X)


@pytest.mark.slow
def test_torch_compile_sees_the_original(write, monkeypatch) -> None:
    """Dynamo does not compare these settings before later calls."""
    monkeypatch.setenv("KERNELLLM_COMPILE", "1")
    torch._dynamo.reset()
    module = adopted(write, CONVOLUTION_PRECISION, body=TORCH_BODY)
    assert not ran(torch.compile(module, backend="eager", fullgraph=True)(X))
    torch._dynamo.reset()
