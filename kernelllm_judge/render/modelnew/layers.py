"""Writes calls of torch's stock layers as calls of functions on the target's attributes.

What a layer computes then counts as torch's part of the work, which the judge limits.
"""

from __future__ import annotations

import ast
import string
from collections.abc import Callable, Mapping

from kernelllm_judge.core.syntax import expression, literal

VENDOR = frozenset(
    {"Linear", "Bilinear", "Embedding"} | {f"Conv{t}{n}d" for t in ("", "Transpose") for n in (1, 2, 3)}
)
"""Stock layers that a kernel module calls as they are."""

_IN_EVAL = "False, 0.0"
"""``training`` and ``momentum`` of ``batch_norm``."""
_F = "torch.nn.functional"
_FUNCTIONS: Mapping[str, str] = {
    **{f"Dropout{n}": "{x}" for n in ("", "1d", "2d", "3d")},
    "AlphaDropout": "{x}",
    "Identity": "{x}",
    "Flatten": "torch.flatten({x}, {start_dim}, {end_dim})",
    "Sigmoid": "torch.sigmoid({x})",
    "Tanh": "torch.tanh({x})",
    **{
        name: f"{_F}.{name.lower()}({{x}})"
        for name in (
            *("ReLU", "ReLU6", "SiLU", "SELU", "Mish", "Hardswish", "Hardsigmoid", "Softsign"),
            "LogSigmoid",
        )
    },
    "GELU": f"{_F}.gelu({{x}}, approximate={{approximate}})",
    "LeakyReLU": f"{_F}.leaky_relu({{x}}, {{negative_slope}})",
    "ELU": f"{_F}.elu({{x}}, {{alpha}})",
    "CELU": f"{_F}.celu({{x}}, {{alpha}})",
    "Softplus": f"{_F}.softplus({{x}}, {{beta}}, {{threshold}})",
    "Hardtanh": f"{_F}.hardtanh({{x}}, {{min_val}}, {{max_val}})",
    "Softmax": f"{_F}.softmax({{x}}, {{dim}})",
    "LogSoftmax": f"{_F}.log_softmax({{x}}, {{dim}})",
    "PReLU": f"{_F}.prelu({{x}}, {{weight}})",
    **{
        f"BatchNorm{n}d": f"{_F}.batch_norm({{x}}, {{running_mean}}, {{running_var}}, {{weight}}, {{bias}}, {_IN_EVAL}, {{eps}})"
        for n in (1, 2, 3)
    },
    "LayerNorm": f"{_F}.layer_norm({{x}}, {{normalized_shape}}, {{weight}}, {{bias}}, {{eps}})",
    "RMSNorm": f"{_F}.rms_norm({{x}}, {{normalized_shape}}, {{weight}}, {{eps}})",
    "GroupNorm": f"{_F}.group_norm({{x}}, {{num_groups}}, {{weight}}, {{bias}}, {{eps}})",
    **{
        f"InstanceNorm{n}d": f"{_F}.instance_norm({{x}}, {{running_mean}}, {{running_var}}, {{weight}}, {{bias}},"
        " not {track_running_stats}, 0.0, {eps})"
        for n in (1, 2, 3)
    },
    **{
        f"MaxPool{n}d": f"{_F}.max_pool{n}d({{x}}, {{kernel_size}}, {{stride}}, {{padding}}, {{dilation}},"
        " {ceil_mode}, {return_indices})"
        for n in (1, 2, 3)
    },
    **{
        f"AvgPool{n}d": f"{_F}.avg_pool{n}d({{x}}, {{kernel_size}}, {{stride}}, {{padding}}, {{ceil_mode}},"
        " {count_include_pad}" + (")" if n == 1 else ", {divisor_override})")
        for n in (1, 2, 3)
    },
    **{f"AdaptiveAvgPool{n}d": f"{_F}.adaptive_avg_pool{n}d({{x}}, {{output_size}})" for n in (1, 2, 3)},
    **{f"AdaptiveMaxPool{n}d": f"{_F}.adaptive_max_pool{n}d({{x}}, {{output_size}})" for n in (1, 2, 3)},
}
"""What each layer computes in evaluation mode; attributes of the layer in braces."""


def is_stock(cls: str, layer: str) -> bool:
    """Whether a class is the one of torch's layers that ``torch.nn.Linear`` or ``Linear`` names."""
    module, _, name = cls.rpartition(".")
    return module.startswith("torch.nn.modules.") and name == layer.rpartition(".")[2]


def has_weights(layer: str) -> bool:
    """Whether a stock layer's call needs more than what its constructor is given."""
    name = layer.rpartition(".")[2]
    return name not in _FUNCTIONS or "{weight}" in _FUNCTIONS[name] or "{running_mean}" in _FUNCTIONS[name]


def differs_in_training(layer: str) -> bool:
    """Whether a layer does something else in training than in evaluation."""
    return layer.startswith(("Dropout", "AlphaDropout", "BatchNorm", "InstanceNorm"))


def call_of(cls: str, x: ast.expr, attribute: Callable[[str], ast.expr | None]) -> ast.expr | None:
    """Writes the call of a stock layer as a call of a function.

    Args:
        cls: the layer's class, such as ``torch.nn.modules.activation.ReLU`` or ``ReLU``.
        x: the argument.
        attribute: writes an attribute of the layer; returns None if it is not known.

    Returns:
        The expression, or None if the layer has no such form or an attribute is not known.
    """
    template = _FUNCTIONS.get(cls.rpartition(".")[2])
    if template is None:
        return None
    names = [name for _, name, _, _ in string.Formatter().parse(template) if name and name != "x"]
    values = {name: attribute(name) for name in names}
    known = {name: ast.unparse(value) for name, value in values.items() if value is not None}
    if len(known) < len(names):
        return None
    return expression(template.format(x=ast.unparse(x), **known))


def from_constructor(stated: Mapping[str, object]) -> Callable[[str], ast.expr | None]:
    """Returns a function that writes a layer's attributes as its constructor's arguments."""

    def attribute(name: str) -> ast.expr | None:
        value = stated.get(name)
        if value is None and name == "stride":
            value = stated.get("kernel_size")
        if name in stated:
            return literal(value)
        return literal(None) if name in ("weight", "bias", "running_mean", "running_var") else None

    return attribute
