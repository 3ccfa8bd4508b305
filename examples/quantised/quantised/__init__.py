"""Layers whose weights or activations have few bits, each marked for pytest-kernelllm."""

from quantised.activations import QuantizeFP8, QuantizeInt8
from quantised.linear import FP8Linear, Int4Linear, Int8Linear

__all__ = ["FP8Linear", "Int4Linear", "Int8Linear", "QuantizeFP8", "QuantizeInt8"]
