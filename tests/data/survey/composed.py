"""Modules as users compose them: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict, shared parts."""

from collections import OrderedDict
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from pytest_kernelllm import triton_candidate


def rows():
    return torch.randn(4, 16)


def images():
    return torch.randn(2, 8, 8, 8)


def sequences():
    return torch.randn(2, 8, 12)


@triton_candidate(inputs=rows)
class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32, eps=1e-3), nn.Linear(32, 16))

    def forward(self, x):
        return self.net(x)


@triton_candidate(inputs=rows)
class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


@triton_candidate(inputs=rows)
class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleDict(
            {"down-1": nn.Linear(16, 4), "up": nn.Linear(4, 16), "0": nn.LayerNorm(16), "class": nn.Tanh()}
        )

    def forward(self, x):
        return self.blocks["class"](self.blocks["0"](x + self.blocks["up"](F.silu(self.blocks["down-1"](x)))))


@triton_candidate(inputs=rows)
class Scales(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([torch.rand(16), torch.rand(16)])
        self.shifts = nn.ParameterDict({"first": torch.rand(16), "last one": torch.rand(16)})

    def forward(self, x):
        return (x * self.scales[0] + self.shifts["first"]).relu() * self.scales[-1] + self.shifts["last one"]


@triton_candidate(inputs=rows)
class OddNames(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_parameter("lambda", nn.Parameter(torch.rand(16)))
        self.register_buffer("0", torch.rand(16))
        self.add_module("1", nn.LayerNorm(16))

    def forward(self, x):
        return getattr(self, "1")(x * getattr(self, "lambda")) + getattr(self, "0")


@triton_candidate(init=(nn.Linear(16, 16), nn.ReLU(), nn.LayerNorm(16)), inputs=rows)
class Chain(nn.Sequential):
    pass


@triton_candidate(inputs=rows)
class Named(nn.Module):
    def __init__(self):
        super().__init__()
        parts = [("fc", nn.Linear(16, 16)), ("act", nn.SiLU()), ("norm", nn.LayerNorm(16))]
        self.net = nn.Sequential(OrderedDict(parts))

    def forward(self, x):
        return self.net(x)


class Residual(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.body = nn.Sequential(nn.LayerNorm(16), nn.Sequential(nn.Linear(16, 16), nn.GELU()))
        self.scale = scale

    def forward(self, x):
        return x + self.scale * self.body(x)


@triton_candidate(inputs=rows)
class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Residual(0.3), Residual(0.7))
        self.head = nn.ModuleDict({"norm": nn.RMSNorm(16), "out": nn.Linear(16, 4)})

    def forward(self, x):
        return self.head["out"](self.head["norm"](self.blocks(x))).softmax(-1)


@triton_candidate(inputs=rows)
class SharedActivation(nn.Module):
    def __init__(self):
        super().__init__()
        act = nn.PReLU()
        self.net = nn.Sequential(act, nn.Linear(16, 16), act, nn.Linear(16, 16))

    def forward(self, x):
        return self.net(x)


@triton_candidate(inputs=rows)
class TiedWeights(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)])
        self.layers[1].weight = self.layers[0].weight

    def forward(self, x):
        return self.layers[1](torch.tanh(self.layers[0](x))) + x


@triton_candidate(inputs=images)
class ConvBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        return self.net(x)


@triton_candidate(inputs=images)
class SqueezeExcite(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 2, 1), nn.ReLU(), nn.Conv2d(2, 8, 1), nn.Sigmoid()
        )

    def forward(self, x):
        return x * self.fc(x)


@triton_candidate(inputs=rows)
class TopK(nn.Module):
    def forward(self, x):
        return torch.topk(x, 4)


@triton_candidate(inputs=rows)
class TopTwoOfGates(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 8)

    def forward(self, x):
        values, indices = self.gate(x).softmax(-1).topk(2, dim=-1)
        return values / values.sum(-1, keepdim=True), indices


@triton_candidate(inputs=rows)
class Sorted(nn.Module):
    def forward(self, x):
        return torch.sort(x, dim=-1)


@triton_candidate(inputs=rows)
class SortedValues(nn.Module):
    def forward(self, x):
        return (x * 2).sort(dim=-1).values


@triton_candidate(inputs=rows)
class LargestWithIndex(nn.Module):
    def forward(self, x):
        return x.max(dim=-1)


@triton_candidate(inputs=rows)
class SmallestWithIndex(nn.Module):
    def forward(self, x):
        return torch.min(x * 2, dim=0)


@triton_candidate(inputs=rows)
class LargestSoFar(nn.Module):
    def forward(self, x):
        return torch.cummax(x, dim=-1)


@triton_candidate(inputs=rows)
class Median(nn.Module):
    def forward(self, x):
        return x.median(dim=-1)


@triton_candidate(inputs=rows)
class MinAndMax(nn.Module):
    def forward(self, x):
        return torch.aminmax(x, dim=-1)


@triton_candidate(inputs=rows)
class Spread(nn.Module):
    def forward(self, x):
        return torch.var_mean(x, dim=-1)


@triton_candidate(inputs=sequences)
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.qkv = nn.Linear(12, 36)
        self.out = nn.Linear(12, 12)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(batch, length, 3, 2, 6).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, 12))


def heads():
    return torch.randn(2, 4, 8, 16), torch.randn(2, 2, 8, 16), torch.randn(2, 2, 8, 16)


@triton_candidate(inputs=heads)
class GroupedAttention(nn.Module):
    def forward(self, q, k, v):
        return torch.tanh(F.scaled_dot_product_attention(q, k, v, scale=0.2, enable_gqa=True))


def masked():
    return *(torch.randn(2, 2, 8, 16) for _ in range(3)), torch.rand(8, 8) > 0.2


@triton_candidate(inputs=masked)
class MaskedAttention(nn.Module):
    def forward(self, q, k, v, mask):
        return F.scaled_dot_product_attention(q.relu(), k, v, attn_mask=mask)


def square():
    return tuple(torch.randn(2, 2, 8, 16) for _ in range(3))


@triton_candidate(inputs=square)
class EagerAttention(nn.Module):
    def forward(self, q, k, v):
        return ((q @ k.transpose(-2, -1)) / 4.0).softmax(-1) @ v


@triton_candidate(inputs=square, training=True)
class AttentionWithDropout(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q.relu(), k, v, dropout_p=0.1)


@triton_candidate(inputs=images)
class NearestUpsample(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Upsample(scale_factor=2), nn.SiLU())

    def forward(self, x):
        return self.net(x)


@triton_candidate(inputs=lambda: torch.randn(2, 2, 8))
class TwoLayerGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(8, 4, num_layers=2)

    def forward(self, x):
        return self.gru(x)[0]


@triton_candidate(inputs=sequences)
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 2, 24, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1)

    def forward(self, x):
        return self.layers(x)


@triton_candidate(inputs=images)
class NumbersInForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.limit = 0.25
        self.mean = [0.5, 0.25, 0.125, 0.0, 1.0, 2.0, 3.0, 4.0]

    def forward(self, x):
        x = torch.min(x, torch.tensor(self.limit, device=x.device))
        x = x - torch.tensor(self.mean, device=x.device).view(1, 8, 1, 1)
        y = torch.relu(x + x.new_tensor([[1, 2], [3, 4]])[1, 0])
        y[:, :, 0] = self.limit
        return y


@triton_candidate(inputs=images)
class SmoothedInWindows(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool3d(3, 2, 1)

    def forward(self, x):
        return self.pool(x).relu()


@triton_candidate(inputs=rows)
class ClassConstants(nn.Module):
    EPS: ClassVar[float] = 1e-3
    HIGH = 6.0

    def forward(self, x):
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.EPS)).clamp(0.0, self.HIGH)


def pyramid(batch: int = 2):
    return ([torch.randn(batch, channels, size, size) for channels, size in ((4, 8), (6, 4), (8, 2))],)


@triton_candidate(inputs=pyramid, dims={"batch": (1, 4)})
class Neck(nn.Module):
    """A feature pyramid: what a coarse level shows is added to the finer ones."""

    def __init__(self):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(channels, 8, 1) for channels in (4, 6, 8))
        self.smooth = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))

    def forward(self, features: list[torch.Tensor]) -> list[torch.Tensor]:
        levels = [conv(x) for conv, x in zip(self.lateral, features, strict=True)]
        for i in range(len(levels) - 1, 0, -1):
            levels[i - 1] = levels[i - 1] + F.interpolate(levels[i], scale_factor=2.0, mode="nearest")
        return [conv(x).relu() for conv, x in zip(self.smooth, levels, strict=True)]


def cached(batch: int = 3):
    keys, values = torch.randn(2, 2, batch, 5, 8)
    return {"x": torch.randn(batch, 8), "past": list(zip(keys, values, strict=True))}


@triton_candidate(inputs=cached, dims={"batch": (1, 4)})
class AttentionWithPast(nn.Module):
    """Two layers of attention that take and return keys and values."""

    def forward(self, x, past):
        present = []
        for keys, values in past:
            keys = torch.cat((keys, x[:, None]), 1)
            values = torch.cat((values, torch.tanh(x)[:, None]), 1)
            present.append((keys, values))
            x = ((keys * x[:, None]).sum(-1, keepdim=True).softmax(1) * values).sum(1)
        return x, present


def held(kind, count):
    return lambda rows=4: (kind(torch.randn(rows, 16) for _ in range(count)),)


@triton_candidate(
    inputs={
        "three": held(list, 3),
        "two": held(list, 2),
        "tuple": held(tuple, 2),
        "tensor": rows,
        "none": lambda rows=4: (None, torch.randn(rows, 16)),
    },
)
class Structures(nn.Module):
    def forward(self, features, x=None):
        if features is None:
            return x.relu()
        if isinstance(features, torch.Tensor):
            return features.sigmoid()
        return sum(features) * (2.0 if isinstance(features, tuple) else 0.5)
