"""Layers of few bits: their honest kernels are accepted, and those that miss what the format means are rejected."""

from pathlib import Path

import pytest

from kernelllm_judge import judge
from kernelllm_judge.core.records import Verdict

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples/quantised"
FILES = {
    "Int8Linear": "linear",
    "Int4Linear": "linear",
    "FP8Linear": "linear",
    "QuantizeFP8": "activations",
    "QuantizeInt8": "activations",
}

CUT = "((scaled.to(tl.int32, bitcast=True) >> 20) << 20).to(tl.float32, bitcast=True).to(tl.float8e4nv)"
"""Towards zero: what 3 bits of a significand do not hold is dropped."""

WRONG = {
    "Int8Linear without its scales": ("Int8Linear", "total * tl.load(scale_ptr + column)[None, :]", "total"),
    "Int4Linear with its halves exchanged": ("Int4Linear", "(depth % 2) * 4", "(1 - depth % 2) * 4"),
    "Int4Linear without its zero points": ("Int4Linear", "(code - zero)", "(code - 8.0)"),
    "FP8Linear without the inputs' scales": ("FP8Linear", "total * x_scale * tl", "total * tl"),
    "FP8Linear that rounds its sums to FP8": ("FP8Linear", "total.to(", "total.to(tl.float8e4nv).to("),
    "QuantizeFP8 towards zero": ("QuantizeFP8", "scaled.to(tl.float8e4nv)", CUT),
    "QuantizeFP8 up to another format's largest": ("QuantizeFP8", "448.0", "240.0"),
    "QuantizeFP8 with NaN for what is too large": ("QuantizeFP8", "> 448.0, 448.0", '> 448.0, float("nan")'),
    "QuantizeInt8 towards zero": (
        "QuantizeInt8",
        "libdevice.rint(tl.div_rn(x, scale))",
        "tl.div_rn(x, scale)",
    ),
    "QuantizeInt8 by another scale": ("QuantizeInt8", "127.0", "128.0"),
}
"""By what is wrong: the layer, a part of its kernel, and what is there instead."""


def verdict_on(layer: str, source: str, folder: Path) -> Verdict:
    file = folder / f"{layer}.py"
    file.write_text(source)
    reference = f"{EXAMPLE / 'quantised' / FILES[layer]}.py::{layer}"
    return judge(reference, file, device="cpu", timing=False).verdict


@pytest.mark.parametrize("layer", FILES)
def test_an_honest_kernel_is_accepted(layer: str, tmp_path: Path) -> None:
    verdict = verdict_on(layer, (EXAMPLE / "candidates" / f"{layer}.py").read_text(), tmp_path)
    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_kernel_is_rejected_for_its_values(wrong: str, tmp_path: Path) -> None:
    layer, part, instead = WRONG[wrong]
    source = (EXAMPLE / "candidates" / f"{layer}.py").read_text()
    assert part in source
    verdict = verdict_on(layer, source.replace(part, instead), tmp_path)
    assert verdict.verdict == "rejected", verdict.reason
    assert "is wrong at" in verdict.reason, verdict.reason
