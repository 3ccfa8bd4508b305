"""Modules of torch.nn, as a user would mark them."""

import torch
from torch import nn

from pytest_kernelllm import triton_candidate


def rows():
    return torch.randn(4, 16)


def sequences():
    return torch.randn(2, 8, 12)


def images():
    return torch.randn(2, 8, 8, 8)


def volumes():
    return torch.randn(2, 4, 4, 4, 4)


def pairs():
    return torch.randn(4, 16), torch.randn(4, 16)


def signs():
    return torch.randn(4, 16), torch.randn(4, 16).sign()


def shares():
    return torch.rand(4, 16), torch.rand(4, 16)


def classes():
    return torch.randn(4, 16), torch.randint(0, 16, (4,))


def log_classes():
    return torch.randn(4, 16).log_softmax(-1), torch.randint(0, 16, (4,))


def log_shares():
    return torch.randn(4, 16).log_softmax(-1), torch.randn(4, 16).softmax(-1)


def triples():
    return torch.randn(4, 16), torch.randn(4, 16), torch.randn(4, 16)


def gaussians():
    return torch.randn(4, 16), torch.randn(4, 16), torch.rand(4, 16) + 0.1


def tokens():
    return torch.randint(0, 32, (2, 8))


def paired_rows():
    return torch.randn(4, 12), torch.randn(4, 10)


def columns():
    return torch.randn(2, 12, 9)


def spoken():
    return (
        torch.randn(8, 2, 16).log_softmax(-1),
        torch.randint(1, 16, (2, 3)),
        torch.full((2,), 8),
        torch.full((2,), 3),
    )


# Activations
triton_candidate(nn.ELU, inputs=rows)
triton_candidate(nn.GELU, inputs=rows)
triton_candidate(nn.GLU, inputs=rows)
triton_candidate(nn.Hardsigmoid, inputs=rows)
triton_candidate(nn.Hardswish, inputs=rows)
triton_candidate(nn.LeakyReLU, inputs=rows)
triton_candidate(nn.LogSigmoid, inputs=rows)
triton_candidate(nn.LogSoftmax, init=(-1,), inputs=rows)
triton_candidate(nn.Mish, inputs=rows)
triton_candidate(nn.PReLU, init=(8,), inputs=images)
triton_candidate(nn.RReLU, inputs=rows)
triton_candidate(nn.ReLU, inputs=rows)
triton_candidate(nn.SiLU, inputs=rows)
triton_candidate(nn.Sigmoid, inputs=rows)
triton_candidate(nn.Softmax, init=(-1,), inputs=rows)
triton_candidate(nn.Softplus, inputs=rows)
triton_candidate(nn.Softshrink, inputs=rows)
triton_candidate(nn.Softsign, inputs=rows)
triton_candidate(nn.Tanh, inputs=rows)
triton_candidate(nn.Threshold, init=(0.1, 20.0), inputs=rows)

# Norms
triton_candidate(nn.BatchNorm1d, init=(16,), inputs=rows)
triton_candidate(nn.BatchNorm2d, init=(8,), inputs=images, training=True)
triton_candidate(nn.GroupNorm, init=(2, 8), inputs=images)
triton_candidate(nn.LayerNorm, init=(16,), inputs=rows)
triton_candidate(nn.CrossMapLRN2d, init=(2,), inputs=images)
triton_candidate(nn.RMSNorm, init=(16,), inputs=rows)

# Pooling
triton_candidate(nn.AdaptiveAvgPool2d, init=(1,), inputs=images)
triton_candidate(nn.AdaptiveAvgPool3d, init=(2,), inputs=volumes)
triton_candidate(nn.AdaptiveMaxPool1d, init=(4,), inputs=sequences)
triton_candidate(nn.AvgPool2d, init=(2,), inputs=images)
triton_candidate(nn.FractionalMaxPool2d, init={"kernel_size": 2, "output_size": 4}, inputs=images)
triton_candidate(nn.MaxPool1d, init=(2,), inputs=sequences)
triton_candidate(nn.MaxPool2d, init={"kernel_size": 2, "return_indices": True}, inputs=images)

# Padding and shapes
triton_candidate(nn.ChannelShuffle, init=(2,), inputs=images)
triton_candidate(nn.ConstantPad1d, init=(1, 0.5), inputs=sequences)
triton_candidate(nn.Flatten, inputs=images)
triton_candidate(nn.Fold, init=((4, 4), (2, 2)), inputs=columns)
triton_candidate(nn.Identity, inputs=rows)
triton_candidate(nn.PixelShuffle, init=(2,), inputs=images)
triton_candidate(nn.PixelUnshuffle, init=(2,), inputs=images)
triton_candidate(nn.ReflectionPad2d, init=(1,), inputs=images)
triton_candidate(nn.Unfold, init=(2,), inputs=images)
triton_candidate(nn.Upsample, init={"scale_factor": 2, "mode": "bilinear"}, inputs=images)
triton_candidate(nn.UpsamplingNearest2d, init={"scale_factor": 2}, inputs=images)

# Losses and distances
triton_candidate(nn.BCELoss, inputs=shares)
triton_candidate(nn.BCEWithLogitsLoss, inputs=shares)
triton_candidate(nn.CTCLoss, inputs=spoken)
triton_candidate(nn.CosineSimilarity, inputs=pairs)
triton_candidate(nn.CrossEntropyLoss, inputs=classes)
triton_candidate(nn.GaussianNLLLoss, inputs=gaussians)
triton_candidate(nn.HuberLoss, inputs=pairs)
triton_candidate(nn.KLDivLoss, init={"reduction": "batchmean"}, inputs=log_shares)
triton_candidate(nn.MSELoss, inputs=pairs)
triton_candidate(nn.MultiMarginLoss, inputs=classes)
triton_candidate(nn.NLLLoss, inputs=log_classes)
triton_candidate(nn.PairwiseDistance, inputs=pairs)
triton_candidate(nn.SoftMarginLoss, inputs=signs)
triton_candidate(nn.TripletMarginLoss, inputs=triples)

# Layers with weights
triton_candidate(nn.Bilinear, init=(12, 10, 6), inputs=paired_rows)
triton_candidate(nn.Conv2d, init=(8, 4, 3), inputs=images)
triton_candidate(nn.Dropout, inputs=rows)
triton_candidate(nn.Embedding, init=(32, 16), inputs=tokens)
triton_candidate(nn.EmbeddingBag, init=(32, 16), inputs=tokens)
triton_candidate(nn.LSTMCell, init=(16, 12), inputs=rows)
triton_candidate(nn.Linear, init=(16, 8), inputs=rows)
triton_candidate(
    nn.MultiheadAttention, init=(12, 2), inputs=lambda: tuple(torch.randn(2, 8, 12) for _ in range(3))
)
