"""The modules that the test model has learnt kernels for. Tests lay this file out as a user's project."""

import torch
from torch import nn
from torch.nn import functional

from pytest_kernelllm import triton_candidate


def rows(count, columns):
    return lambda: torch.randn(count, columns)


def pair(*shape):
    return lambda: (torch.randn(shape), torch.randn(shape))


@triton_candidate(inputs=rows(6, 48), init=(48,), dims={})
class Affine(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x * self.scale + self.shift


@triton_candidate(inputs=pair(4, 33), dims={})
class Gate(nn.Module):
    def forward(self, gate, up):
        return functional.silu(gate) * up


@triton_candidate(inputs=rows(5, 40), init=(40, 1e-5), dims={})
class RMSNorm(nn.Module):
    def __init__(self, hidden_size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, hidden):
        variance = hidden.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden * torch.rsqrt(variance + self.eps))


@triton_candidate(inputs=rows(7, 50), dims={})
class Softmax(nn.Module):
    def forward(self, scores):
        return torch.softmax(scores, dim=-1)


@triton_candidate(inputs=pair(4, 4, 4, 4), dims={})
class AddReLU(nn.Module):
    def forward(self, left, right):
        return torch.relu(left + right)
