"""Modules that the compiler leaves to libraries: matrix products and convolutions."""

import torch
from torch import nn

from pytest_kernelllm import triton_candidate


def pair(*first):
    return lambda: (torch.randn(*first), torch.randn(first[-1], 24))


@triton_candidate(inputs=pair(40, 48), dtypes=("float32", "bfloat16"))
class Product(nn.Module):
    def forward(self, x, y):
        return x @ y


@triton_candidate(inputs=lambda: (torch.randn(48, 40), torch.randn(48, 24)))
class Turned(nn.Module):
    def forward(self, x, y):
        return x.t() @ y


@triton_candidate(inputs=lambda: (torch.randn(48, 40), torch.randn(24, 48)))
class BothTurned(nn.Module):
    def forward(self, x, y):
        return x.t() @ y.t()


@triton_candidate(
    inputs=lambda: (torch.randn(64, 48), torch.randn(48, 64), torch.randn(64, 48), torch.randn(48, 64))
)
class TwoProducts(nn.Module):
    def forward(self, x, y, z, w):
        return x @ y + z @ w


@triton_candidate(inputs=lambda: torch.randn(2, 8, 12, 12))
class ConvolutionAndProduct(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(8, 16, 3)
        self.linear = nn.Linear(10, 24)

    def forward(self, x):
        return self.linear(self.convolution(x))


@triton_candidate(inputs=pair(40, 48), dtypes=("float32", "bfloat16"))
class Activated(nn.Module):
    def forward(self, x, y):
        return torch.sigmoid(x @ y)


@triton_candidate(inputs=lambda: (torch.randn(3, 20, 32), torch.randn(3, 32, 24)))
class Batched(nn.Module):
    def forward(self, x, y):
        return torch.bmm(x, y)


@triton_candidate(inputs=lambda: (torch.randn(40, 64), torch.randn(64, 1)))
class Vector(nn.Module):
    def forward(self, x, y):
        return x @ y


@triton_candidate(inputs=lambda: (torch.randn(16, 4096), torch.randn(4096, 16)))
class Long(nn.Module):
    def forward(self, x, y):
        return x @ y


def tokens(batch: int = 4):
    return torch.randn(batch, 32)


@triton_candidate(inputs=tokens, dims={"batch": (1, 32)})
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 48)

    def forward(self, x):
        return torch.relu(self.linear(x))


@triton_candidate(inputs=lambda: torch.randn(2, 16, 30))
class Conv1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(16, 20, 3, stride=2, padding=1)

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(2, 16, 9, 9))
class Conv2d(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(16, 20, 3, padding=1, stride=2)

    def forward(self, x):
        return self.convolution(x)


def images(batch: int = 3):
    return torch.randn(batch, 6, 9, 8)


@triton_candidate(inputs=images, dims={"batch": (1, 8)})
class Grouped(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(6, 10, (3, 2), groups=2)

    def forward(self, x):
        return torch.relu(self.convolution(x))


@triton_candidate(inputs=lambda: torch.randn(2, 16, 6, 5, 4))
class Conv3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv3d(16, 20, 3, padding=1, bias=False)

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(2, 16, 9, 9))
class Pointwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(16, 20, 1)

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(2, 16, 9, 9))
class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(16, 16, 3, groups=16)

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(2, 16, 12))
class Transposed1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.ConvTranspose1d(16, 20, 3, padding=1)

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(2, 16, 6, 5))
class Transposed2d(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.ConvTranspose2d(16, 20, (3, 2), padding=(1, 0), groups=2)

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(1, 16, 4, 3, 3))
class Transposed3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.ConvTranspose3d(16, 16, 2, bias=False)

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(2, 6, 9))
class Strided1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.ConvTranspose1d(6, 10, 4, stride=2, padding=2, groups=2)

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(2, 16, 6, 5))
class Strided2d(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.ConvTranspose2d(16, 20, 3, stride=2, padding=1, output_padding=1)

    def forward(self, x):
        return torch.relu(self.convolution(x))


@triton_candidate(inputs=lambda: torch.randn(1, 32, 3, 4, 5))
class Strided3d(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.ConvTranspose3d(
            32, 24, (3, 5, 2), stride=(1, 3, 2), padding=(1, 2, 0), output_padding=(0, 0, 1), groups=2
        )

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(1, 3, 4, 4, 5))
class StridedFewChannels(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.ConvTranspose3d(3, 18, 3, stride=2, padding=1, bias=False)

    def forward(self, x):
        return self.convolution(x).amax(1)


def sized(batch: int = 2, size: int = 5):
    return torch.randn(batch, 4, size, 6)


@triton_candidate(inputs=sized, dims={"batch": (1, 9), "size": (1, 40)})
class StridedFreeSizes(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.ConvTranspose2d(4, 20, 2, stride=2)

    def forward(self, x):
        return self.convolution(x)


@triton_candidate(inputs=lambda: torch.randn(2, 32, 5, 6), dtypes=("float16", "bfloat16"))
class StridedHalf(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.ConvTranspose2d(32, 20, 4, stride=2, padding=1)

    def forward(self, x):
        return torch.relu(self.convolution(x))
