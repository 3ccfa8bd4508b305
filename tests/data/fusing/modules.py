"""Modules that TorchInductor and completions in its dialect write kernels for."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers.activations import NewGELUActivation
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

from pytest_kernelllm import triton_candidate

BOTH = ("float32", "bfloat16")
DIMS = {"batch": (1, 64), "seq": (1, 256)}


def hidden(batch=3, seq=5):
    return torch.randn(batch, seq, 96)


def rows(columns):
    def inputs(batch=4):
        return torch.randn(batch, columns)

    return inputs


triton_candidate(LlamaRMSNorm, init=(96,), inputs=hidden, dtypes=BOTH, dims=DIMS)
triton_candidate(GemmaRMSNorm, init=(96,), inputs=hidden, dims=DIMS)
triton_candidate(T5LayerNorm, init=(96,), inputs=hidden, dims=DIMS)
triton_candidate(NewGELUActivation, inputs=rows(100), dtypes=BOTH, dims={"batch": (1, 64)})
triton_candidate(
    LlamaMLP, init=(LlamaConfig(hidden_size=96, intermediate_size=48),), inputs=hidden, dtypes=BOTH, dims=DIMS
)


def logits(batch=6):
    return torch.randn(batch, 1111), torch.randint(0, 1111, (batch,))


@triton_candidate(inputs=logits, dims={"batch": (1, 64)})
class CrossEntropy(nn.Module):
    def forward(self, logits, labels):
        return F.cross_entropy(logits, labels)


@triton_candidate(inputs=hidden, dtypes=BOTH, dims=DIMS)
class NormGELU(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)
        self.fc = nn.Linear(96, 48)

    def forward(self, x):
        return F.gelu(self.fc(self.norm(x)))


def predictions():
    return torch.randn(128, 32), torch.randn(128, 32).sign()


@triton_candidate(inputs=predictions)
class HingeLoss(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


def hidden_and_residual(batch=3, seq=5):
    return {"x": torch.randn(batch, seq, 80), "residual": torch.randn(batch, seq, 80)}


@triton_candidate(inputs=hidden_and_residual, dtypes=BOTH, dims=DIMS)
class AddNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(80))
        self.eps = 1e-5

    def forward(self, x, residual):
        total = x + residual
        mean = total.float().pow(2).mean(-1, keepdim=True)
        return (total.float() * torch.rsqrt(mean + self.eps)).to(x.dtype) * self.weight, total


def queries(seq=5):
    q, k = torch.randn(2, 4, seq, 16), torch.randn(2, 2, seq, 16)
    return (q, k, torch.randn(1, 1, seq, 16), torch.randn(1, 1, seq, 16))


@triton_candidate(inputs=queries, dims={"seq": (1, 256)})
class Rotary(nn.Module):
    def forward(self, q, k, cos, sin):
        return {"q": q * cos + self.turned(q) * sin, "k": k * cos + self.turned(k) * sin}

    def turned(self, x):
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


@triton_candidate(inputs=lambda rows=6: torch.randn(rows, 12), dims={"rows": (1, 256)})
class Swapped(nn.Module):
    def forward(self, x):
        swapped = torch.cat((2 * x[:, 5:], x[:, :5] + 1), dim=1)
        return swapped, torch.cat((x, -x), dim=1), torch.cat((x[:, :4], x.exp()[:, 4:8], x[:, 8:]), dim=1)


def images(batch=2):
    return torch.randn(batch, 16, 7, 7)


@triton_candidate(inputs=images, dims={"batch": (1, 64)})
class GroupNormReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(4, 16)

    def forward(self, x):
        return F.relu(self.norm(x))


@triton_candidate(inputs=images)
class ConvReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x):
        return F.relu(self.conv(x)) * 2


@triton_candidate(inputs=rows(1000), dtypes=BOTH, dims={"batch": (1, 64)})
class Softmax(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


@triton_candidate(inputs=rows(100), dims={"batch": (1, 64)})
class Cumsum(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, -1)


@triton_candidate(inputs=rows(100), dims={"batch": (1, 64)})
class Argmax(nn.Module):
    def forward(self, x):
        return torch.argmax(x, -1)


@triton_candidate(inputs=hidden, dims=DIMS)
class Transpose(nn.Module):
    def forward(self, x):
        return (x.transpose(1, 2) * 2 + 1).contiguous()


def masked(batch=4):
    return {"x": torch.randn(batch, 64), "mask": torch.randn(batch, 64) > 0}


@triton_candidate(inputs={"plain": rows(64), "masked": masked})
class MaskedSoftmax(nn.Module):
    def forward(self, x, mask=None):
        return x * 2 if mask is None else x.masked_fill(mask, -1e4).softmax(-1)


@triton_candidate(inputs=hidden)
class Median(nn.Module):
    def forward(self, x):
        return torch.median(x, -1).values


@triton_candidate(inputs=rows(8), training=True)
class Dropout(nn.Module):
    def forward(self, x):
        return F.dropout(x, 0.5, self.training)


@triton_candidate(inputs=rows(8), backward=True)
class Trained(nn.Module):
    def forward(self, x):
        return torch.sin(x) * 2


@triton_candidate(inputs=images, training=True)
class BatchNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(16)

    def forward(self, x):
        return self.norm(x)


# What the completions in ``tests/data/completions/dialect_*`` were written for.


def cubes():
    return torch.randn(4, 4, 4, 4)


def two_cubes():
    return torch.randn(4, 4, 4, 4), torch.randn(4, 4, 4, 4)


@triton_candidate(inputs=two_cubes)
class AddReLU(nn.Module):
    def forward(self, x, y):
        return F.relu(x + y)


@triton_candidate(inputs=cubes)
class LinearReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return F.relu(self.fc(x))


@triton_candidate(inputs=cubes)
class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.net(x)


@triton_candidate(inputs=cubes)
class SoftmaxDim(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


@triton_candidate(inputs=cubes)
class PlainLayerNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(x)


@triton_candidate(inputs=cubes)
class ConvTanh(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return torch.tanh(self.conv(x))


@triton_candidate(inputs=two_cubes)
class MeanSquare(nn.Module):
    def forward(self, x, y):
        return torch.mean((x - y) ** 2)


@triton_candidate(inputs=cubes)
class Swap(nn.Module):
    def forward(self, x):
        return x.transpose(2, 3).contiguous()


@triton_candidate(inputs=rows(16), dims={"batch": (1, 64)})
class BySize(nn.Module):
    """Takes another path for few rows, so no one kernel serves every size."""

    def forward(self, x):
        return torch.sin(x) if x.shape[0] > 3 else torch.cos(x)


@triton_candidate(inputs=cubes)
class ConvThenReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return F.relu(self.conv(x))


@triton_candidate(inputs=cubes)
class ArgmaxOfChannels(nn.Module):
    def forward(self, x):
        return torch.argmax(x, 1)


@triton_candidate(inputs=cubes)
class UnbiasedReLU(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return F.relu(self.fc(x))


@triton_candidate(inputs=cubes)
class DepthwiseTanh(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        return torch.tanh(self.conv(x))


@triton_candidate(inputs=cubes)
class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)

    def forward(self, x):
        return self.pool(x) - x[:, :, ::2, ::2]


@triton_candidate(inputs=lambda: torch.randn(2, 16, 8, 8))
class Dilated(nn.Module):
    """Inductor has no template for it, and would only copy what the library reads and writes to another layout."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(16, 32, 3, dilation=2, bias=False)

    def forward(self, x):
        return self.conv(x)
