"""Blocks of a language model in training, marked with ``backward=True``: kernels for both passes are judged."""

from training_blocks.activations import GEGLU, SwiGLU
from training_blocks.losses import SoftmaxCrossEntropy
from training_blocks.norms import LayerNorm, RMSNorm
from training_blocks.rotary import RotaryEmbedding

__all__ = ["GEGLU", "LayerNorm", "RMSNorm", "RotaryEmbedding", "SoftmaxCrossEntropy", "SwiGLU"]
