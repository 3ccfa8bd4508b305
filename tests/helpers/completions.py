"""The stored completions: what each is written for, and what must become of it on today's torch, on CPU and GPU.

Sound text is accepted, with whatever is dead in it; what is wrong stays wrong, and the reason says where.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from loading import load

from kernelllm_judge.core.records import Completion
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import RenderError, render
from kernelllm_judge.target.live import LiveTarget

DATA = Path(__file__).parents[1] / "data"
FUSING = "fusing/modules.py"
RENDERING = "rendering/layers.py"


@dataclass(frozen=True)
class Expected:
    """What becomes of a completion."""

    target: str
    """``file::Class`` below ``tests/data``."""
    rule: str = ""
    """The rule that the judge rejects it by; ``render`` where no candidate comes of it; empty: it is accepted."""
    reason: str = ""
    """A pattern that is found in the reason."""
    translated: bool = False


def _dialect(name: str, rule: str = "", reason: str = "") -> Expected:
    return Expected(f"{FUSING}::{name}", rule, reason, translated=rule != "render")


def _hand(name: str, rule: str = "", reason: str = "") -> Expected:
    return Expected(f"{RENDERING}::{name}", rule, reason)


TABLE = {
    # ---- the dialect of torch 2.5's Inductor: sound
    "dialect_add_relu": _dialect("AddReLU"),
    "dialect_addmm": _dialect("LinearReLU"),
    "dialect_argmax": _dialect("ArgmaxOfChannels"),
    "dialect_conv_relu": _dialect("ConvThenReLU"),
    "dialect_conv_tanh": _dialect("ConvTanh"),
    "dialect_dead_imports": _dialect("AddReLU"),
    "dialect_device_index": _dialect("AddReLU"),
    "dialect_layer_norm": _dialect("PlainLayerNorm"),
    "dialect_linear_relu": _dialect("LinearReLU"),
    "dialect_mean_square": _dialect("MeanSquare"),
    "dialect_optimizer": _dialect("LinearReLU"),
    "dialect_sequential": _dialect("Chain"),
    "dialect_softmax": _dialect("SoftmaxDim"),
    "dialect_swap": _dialect("Swap"),
    # ---- broken: wrong when it runs
    "dialect_bias_dropped": _dialect("LinearReLU", "values", "is wrong at"),
    "dialect_conv_missing": _dialect("ConvTanh", "memory", "which nothing has written"),
    "dialect_matmul_missing": _dialect("LinearReLU", "memory", "which nothing has written"),
    "dialect_past_the_end": _dialect("AddReLU", "memory", "reads element 256 of `x_ptr`"),
    "dialect_softmax_wrong": _dialect("SoftmaxDim", "values", "is wrong at"),
    # ---- broken: no candidate comes of it
    "dialect_argument_count": _dialect("LinearReLU", "render", r"3 arguments; it takes 4 \(in_out_ptr0"),
    "dialect_cut_before_model": _dialect("SoftmaxDim", "render", "no class ModelNew; .* probably cut off"),
    "dialect_cut_in_call": _dialect("PlainLayerNorm", "render", "no class ModelNew"),
    "dialect_helper": _dialect("LinearReLU", "render", "triton_helpers.bucketize_binary_search"),
    "dialect_other_name": _dialect("LinearReLU", "render", "no attribute `linear.weight`"),
    "dialect_other_shape": _dialect(
        "SoftmaxDim", "render", r"of shape \(8, 512\); the target's is \(4, 4, 4, 4\)"
    ),
    "dialect_pooling": _dialect("LinearReLU", "render", "aten.max_pool2d_with_indices"),
    # ---- hand-style: sound
    "hand_add": _hand("Add"),
    "hand_add_constant": _hand("Add"),
    "hand_add_cut_fence": _hand("Add"),
    "hand_add_function": _hand("Add"),
    "hand_add_two_blocks": _hand("Add"),
    "hand_add_untagged": _hand("Add"),
    "hand_containers": _hand("Stack"),
    "hand_dead_imports": _hand("Softmax"),
    "hand_layer_norm": _hand("LayerNorm"),
    "hand_linear_functional": _hand("LinearGelu"),
    "hand_linear_fused": _hand("LinearGelu"),
    "hand_linear_gelu": _hand("LinearGelu"),
    "hand_old_libdevice": _hand("Softmax"),
    "hand_old_math": _hand("Scale"),
    "hand_reduce": _hand("Softmax"),
    "hand_rms_autotuned": _hand("RMSNorm"),
    "hand_rms_methods": _hand("RMSNorm"),
    "hand_rms_renamed_eps": _hand("RMSNorm"),
    "hand_scale": _hand("Scale"),
    "hand_softmax": _hand("Softmax"),
    "hand_tabs": _hand("LayerNorm"),
    "hand_wrapped_function": _hand("LayerNorm"),
    # ---- broken
    "hand_bias_dropped": _hand("LinearGelu", "values", "is wrong at"),
    "hand_block": _hand("Block", "torch's share", "torch does the work: add"),
    "hand_other_eps": _hand("Block", "values", "is wrong at"),
    "hand_past_the_end": _hand("Add", "memory", "writes element 132 of `out_ptr`"),
    "hand_wrong_sum": _hand("Softmax", "values", "is wrong at"),
}


def decide(judge: Judge, name: str) -> tuple[str, str, bool | None]:
    """Judges a completion, given by its name.

    Returns:
        The rule that was broken (``render`` if the completion gave no candidate, empty if it was accepted), the
        reason, and whether the candidate was translated.
    """
    live = live_target(TABLE[name].target)
    text = (DATA / "completions" / f"{name}.txt").read_bytes().decode()
    try:
        candidate = render(Completion("files", 0, text, "modelnew"), live, judge.constructors)
    except RenderError as error:
        return "render", str(error), None
    verdict = judge.judge(candidate, Criteria(live, timing=False))
    became = verdict.rule or ("" if verdict.accepted else verdict.verdict)
    return became, verdict.reason, candidate.translated


def check(name: str, answer: tuple[str, str, bool | None]) -> None:
    """The answer is the expected one."""
    expected = TABLE[name]
    rule, reason, translated = answer
    assert rule == expected.rule, reason
    assert re.search(expected.reason, reason), reason
    assert translated in (expected.translated, None)


@cache
def live_target(name: str) -> LiveTarget:
    """A target by ``file::Class``, as ``TABLE`` names it."""
    path, _, cls = name.partition("::")
    file = DATA / path
    return load(file, cls)
