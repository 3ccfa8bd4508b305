"""Building blocks of a language model, each marked for pytest-kernelllm."""

from llm_blocks.activations import SwiGLU
from llm_blocks.linear import GatedMLP, Projection
from llm_blocks.losses import HingeLoss, SoftmaxCrossEntropy
from llm_blocks.norms import LayerNormGELU, ResidualRMSNorm, RMSNorm
from llm_blocks.rotary import RotaryEmbedding, rotary_tables

__all__ = [
    "GatedMLP",
    "HingeLoss",
    "LayerNormGELU",
    "Projection",
    "RMSNorm",
    "ResidualRMSNorm",
    "RotaryEmbedding",
    "SoftmaxCrossEntropy",
    "SwiGLU",
    "rotary_tables",
]
