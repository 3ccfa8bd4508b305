"""Gradients of a kernel's gradients, which have no graph, are refused loudly."""

from dataclasses import replace

import pytest
import torch
from adopting import DOMAIN, X, kernel_text, ran

pytestmark = pytest.mark.filterwarnings("error::pytest_kernelllm.runtime.KernelLLMWarning")

BODY = """
class Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        ctx.save_for_backward(x, weight)
        return x * weight + bias + eps + 100.0

    @staticmethod
    def backward(ctx, grad):
        x, weight = (tensor.detach() for tensor in ctx.saved_tensors)
        grad = grad.detach()
        return grad * weight, (grad * x).sum(0), grad.sum(0), None


def forward(self, x, scale=1.0, mask=None):
    return Shifted.apply(x, self.weight, self.inner.bias, self.eps)
"""


def test_second_derivatives_through_a_kernel_raise(write) -> None:
    module = write(kernel_text(BODY, domain=replace(DOMAIN, grad=True)))().eval()
    x = X.clone().requires_grad_()
    out = module(x)
    assert ran(out)
    [gradient] = torch.autograd.grad(out.sum(), x, retain_graph=True)
    torch.testing.assert_close(gradient, module.weight.detach().expand_as(x))
    with pytest.raises(RuntimeError, match="computes no second derivatives"):
        torch.autograd.grad(out.square().sum(), x, create_graph=True)
    out.sum().backward()
    assert module.weight.grad is not None
    with torch.no_grad():
        assert ran(module(X))
