"""Modules that the completions in ``tests/data/completions`` were written for."""

import torch
from torch import nn

from pytest_kernelllm import triton_candidate


def pair():
    return torch.randn(4, 33), torch.randn(4, 33)


def rows(count, columns):
    return lambda: torch.randn(count, columns)


@triton_candidate(inputs=pair)
class Add(nn.Module):
    def forward(self, x, y):
        return x + y


@triton_candidate(inputs=rows(5, 48), init=(48, 1e-5))
class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        mean = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * hidden_states * torch.rsqrt(mean + self.variance_epsilon)


@triton_candidate(inputs=rows(6, 40), init=(40,))
class LayerNorm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.bias = nn.Parameter(torch.randn(size))
        self.eps = 1e-5
        self.size = size

    def forward(self, x):
        return nn.functional.layer_norm(x, (self.size,), self.weight, self.bias, self.eps)


@triton_candidate(inputs=rows(7, 50))
class Softmax(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


@triton_candidate(inputs=rows(3, 16), init=(16, 24))
class LinearGelu(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.fc = nn.Linear(inputs, outputs)
        self.act = nn.GELU()

    def forward(self, x, residual=None):
        return self.act(self.fc(x))


class Limiter:
    """Keeps its flag where no domain looks."""

    def __init__(self, causal):
        self.causal = causal


@triton_candidate(inputs=rows(4, 16), init=(4, 64, True))
class Scale(nn.Module):
    def __init__(self, heads, dim, causal):
        super().__init__()
        self.heads, self.dim, self.limiter = heads, dim, Limiter(causal)
        self.head_dim = dim // heads
        self.limit = 30.0

    def forward(self, x):
        return self.limit * torch.tanh(x * self.head_dim**-0.5 / self.limit)


@triton_candidate(inputs=rows(4, 32), init=(32, 1e-5))
class Block(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.norm = RMSNorm(size, eps)
        self.proj = nn.Linear(size, size)

    def forward(self, x):
        return x + self.proj(self.norm(x))


@triton_candidate(inputs=rows(4, 16))
class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.LayerNorm(24, eps=1e-3))
        self.layers = nn.ModuleList(nn.Linear(24, 24) for _ in range(2))
        self.heads = nn.ModuleDict({"down-1": nn.Linear(24, 8)})
        self.scales = nn.ParameterList([torch.rand(8)])

    def forward(self, x):
        x = self.net(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.heads["down-1"](x) * self.scales[0]


@triton_candidate(inputs=rows(4, 24))
class TwoNorms(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.LayerNorm(24)
        self.second = nn.LayerNorm(24)

    def forward(self, x):
        return self.second(self.first(x))


@triton_candidate(inputs=rows(4, 16))
class Tail(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 24), nn.Dropout(0.5), nn.Identity())
        self.pool = nn.MaxPool1d(2)
        self.stages = nn.ModuleList([nn.Linear(24, 24), nn.ReLU()])

    def forward(self, x):
        x = self.net(x)
        for stage in self.stages:
            x = stage(x)
        return self.pool(x)
