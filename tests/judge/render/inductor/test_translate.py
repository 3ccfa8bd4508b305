"""Completions like the code of torch 2.5's Inductor, as models trained on its output write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fusing import COMPLETIONS, errors, from_inductor, from_text, inductor, live

from kernelllm_judge.core.kernel_module import read_supports
from kernelllm_judge.core.records import Completion
from kernelllm_judge.render.extract import extract
from kernelllm_judge.render.inductor import sections
from kernelllm_judge.render.inductor.translate import is_inductor_code
from kernelllm_judge.render.render import RenderError, render
from kernelllm_judge.static_check.static_check import find_violations

SOUND = {
    "dialect_add_relu": "AddReLU",
    "dialect_linear_relu": "LinearReLU",
    "dialect_softmax": "SoftmaxDim",
    "dialect_layer_norm": "PlainLayerNorm",
    "dialect_conv_tanh": "ConvTanh",
    "dialect_conv_relu": "ConvThenReLU",
    "dialect_argmax": "ArgmaxOfChannels",
    "dialect_mean_square": "MeanSquare",
    "dialect_swap": "Swap",
}
WRONG = {"dialect_softmax_wrong": "SoftmaxDim"}
BROKEN = {
    "dialect_cut_in_call": ("PlainLayerNorm", "There is no class ModelNew"),
    "dialect_cut_before_model": ("SoftmaxDim", "There is no class ModelNew; the text was probably cut off"),
    "dialect_other_shape": (
        "SoftmaxDim",
        r"written for `x` of shape \(8, 512\); the target's is \(4, 4, 4, 4\)",
    ),
    "dialect_other_name": ("LinearReLU", "no attribute `linear.weight`"),
    "dialect_argument_count": (
        "LinearReLU",
        r"3 arguments; it takes 4 \(in_out_ptr0, in_ptr0, out_ptr0, xnumel\)",
    ),
    "dialect_pooling": ("LinearReLU", "aten.max_pool2d_with_indices"),
    "dialect_helper": ("LinearReLU", "triton_helpers.bucketize_binary_search"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    candidates = {text: (target, from_text(target, text)) for text, target in {**SOUND, **WRONG}.items()}
    return errors(tmp_path_factory.mktemp("inductor"), candidates)


@pytest.mark.parametrize("text", SOUND)
def test_sound_text_computes_what_the_target_does(results: dict[str, Any], text: str) -> None:
    error = results[f"{text} default"]
    assert isinstance(error, float), error
    assert error < 2e-6


def test_wrong_maths_stays_wrong(results: dict[str, Any]) -> None:
    """Form is repaired, never meaning."""
    assert results["dialect_softmax_wrong default"] > 0.1


@pytest.mark.parametrize("text", BROKEN)
def test_broken_text_is_refused_with_the_place(text: str) -> None:
    target, reason = BROKEN[text]
    with pytest.raises(RenderError, match=reason):
        from_text(target, text)


@pytest.mark.parametrize("text", [*SOUND, *WRONG, "dialect_other_shape"])
def test_the_dialect_is_recognised(text: str) -> None:
    assert is_inductor_code(extract((COMPLETIONS / f"{text}.txt").read_text(encoding="utf-8")))


@pytest.mark.parametrize("text", ["hand_add", "hand_layer_norm", "hand_linear_gelu"])
def test_hand_style_is_not_taken_for_it(text: str) -> None:
    assert not is_inductor_code(extract((COMPLETIONS / f"{text}.txt").read_text(encoding="utf-8")))


def changed(*replacements: tuple[str, str], target: str = "LinearReLU") -> str:
    """Renders ``dialect_linear_relu`` after replacements."""
    text = (COMPLETIONS / "dialect_linear_relu.txt").read_text(encoding="utf-8")
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    return render(Completion("files", 0, text, "modelnew"), live(target)).source


@pytest.mark.parametrize(
    "replacements",
    [
        [
            ("buf1 = reinterpret_tensor(buf0,", "buf1 = buf9 = reinterpret_tensor(buf0,"),
            ("](buf1,", "](buf9,"),
        ],
        [("buf2 = empty", "buf7 = buf2 = empty"), ("primals_2, buf2, 256", "primals_2, buf7, 256")],
        [("primals_3 = input_0", "primals_3 = other = input_0")],
        [("        del primals_2\n", "        (primals_2, buf2)\n")],
        [("0), buf2\n", "0), buf2\n    for i in range(3):\n        pass\n    return buf9\n")],
        [
            (
                "        return output[0]",
                "        return output[0]\n        if output:\n            return output[1]",
            )
        ],
        [("@triton.jit\n", "ZERO: tl.constexpr = 0.0\n@triton.jit\n"), ("tmp5 = 0.0", "tmp5 = ZERO")],
        [("@triton.jit\n", "ZERO = tl.constexpr(0.0)\n@triton.jit\n"), ("tmp5 = 0.0", "tmp5 = ZERO")],
    ],
    ids=[
        "chained view",
        "chained buffer",
        "chained input",
        "no effect",
        "dead code",
        "dead in forward",
        "annotated",
        "constexpr",
    ],
)
def test_other_spellings_of_the_same_program_render_alike(replacements: list[tuple[str, str]]) -> None:
    assert changed(*replacements) == changed()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("](buf1,", "](buf7,", "`forward` uses `buf7`, which the completion does not define"),
        ("tmp2 = tmp0 + tmp1", "tmp2 = tmp0 + tmp9", "uses `tmp9`, which is not defined"),
        ("tmp2 = tmp0 + tmp1", "tmp2 = tl.gelu(tmp0 + tmp1)", "but triton.language has no gelu"),
    ],
)
def test_undefined_names_are_refused_by_name(old: str, new: str, reason: str) -> None:
    with pytest.raises(RenderError, match=reason):
        changed((old, new))


def test_a_kernel_cannot_read_a_weight_that_is_none() -> None:
    with pytest.raises(RenderError, match=r"reads `self\.fc\.bias`, which is None in the target"):
        changed(target="UnbiasedReLU")


def test_a_function_that_triton_lacks_is_stood_in_for() -> None:
    source = changed(("tmp2 = tmp0 + tmp1", "tmp2 = tl.log1p(tmp0 + tmp1)"))
    assert "def log1p(x):" in source
    assert "tl.log1p(" not in source


def test_buffers_kept_for_a_backward_pass_are_left_out() -> None:
    source = from_text("LinearReLU", "dialect_linear_relu").source
    assert "torch.bool" not in source and source.count("tl.store") == 1
    assert "torch.mm(x.view(64, 4), self.fc.weight.t())" in source


def test_statistics_that_nothing_reads_are_left_out() -> None:
    assert from_text("PlainLayerNorm", "dialect_layer_norm").source.count("tl.store") == 1


def test_nothing_of_the_dead_interfaces_is_left() -> None:
    for text, target in SOUND.items():
        source = from_text(target, text).source
        for word in ("get_raw_stream", "_inductor", "torch._C", "set_device", "grid(", "assert_size_stride"):
            assert word not in source, (text, word)


def test_size_asserts_become_the_domain() -> None:
    (domain,) = read_supports(from_text("AddReLU", "dialect_add_relu").source)
    assert domain.inputs["x"].shape == (4, 4, 4, 4)
    assert domain.dims == {}


def test_tensors_of_two_to_the_31_elements_are_counted_in_64_bits() -> None:
    small = from_inductor("Transpose")
    assert "tl.int64" not in small.source
    case = live("Transpose").cases[0]
    huge = replace(case.domain, dims={"batch": (1, 1 << 20), "seq": (1, 4096)})
    (section,) = sections.read(inductor("Transpose")[0].text)
    text = sections.write([replace(section, case=replace(case, domain=huge))])
    source = render(replace(inductor("Transpose")[0], text=text), live("Transpose")).source
    assert "tl.program_id(0).to(tl.int64)" in source and "tl.program_id(1).to(tl.int64)" in source


def test_a_damaged_header_is_refused() -> None:
    text = inductor("Transpose")[0].text.replace('"arguments"', '"arguemnts"')
    with pytest.raises(RenderError, match="header of section 1"):
        render(Completion("inductor", 0, text, "inductor"), live("Transpose"))


@pytest.mark.parametrize("name", {**SOUND, **WRONG})
def test_rendered_answers_in_inductors_dialect_pass_the_screen(name: str) -> None:
    assert find_violations(from_text({**SOUND, **WRONG}[name], name).source) == []
