"""Matrix products and convolutions: Inductor's templates as kernel modules, right in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from loading import pinned

from kernelllm_judge.candidate import judge_as_shipped
from kernelllm_judge.core.records import Completion
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render
from kernelllm_judge.target.live import LiveTarget
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.generate.inductor import cases
from pytest_kernelllm.generate.inductor.device import gpu_for
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.inductor.lowering import lower
from pytest_kernelllm.generate.inductor.trace import export
from pytest_kernelllm.generate.inductor.variants import TEMPLATES, VARIANTS
from pytest_kernelllm.generate.protocol import Request

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).parents[2] / "data" / "templates"
TARGETS = {target.name: target for target in scan_file(PROJECT / "products.py", PROJECT).targets}


@pytest.fixture
def without_tf32(restored_precision: None) -> None:
    torch.backends.cudnn.allow_tf32 = False


def written(name: str, samples: int = 4, arch: str = "sm_90") -> tuple[LiveTarget, list[Completion]]:
    live = pinned(PROJECT, TARGETS[name])
    request = Request(live.target, tuple(range(samples)), lambda: live)
    return live, [completion for _, completion in InductorGenerator(arch).generate([request])]


@pytest.mark.parametrize("name", TARGETS)
def test_a_library_call_becomes_a_kernel_that_is_right(name: str, judge: Judge) -> None:
    live = pinned(PROJECT, TARGETS[name])
    notes = (TEMPLATES.note, "depthwise convolutions as kernels")
    variants = [variant for variant in VARIANTS if variant.note in notes]
    made = next(c for c in cases.completions(live, gpu_for("sm_90"), variants, range(2)) if c.text)
    candidate = render(made, live)
    assert "torch.mm" not in candidate.source and "torch.conv" not in candidate.source
    assert "torch.addmm" not in candidate.source and "torch.bmm" not in candidate.source
    _, verdict = judge_as_shipped(judge, candidate, Criteria(live, timing=False))
    assert verdict.accepted, verdict.reason


def test_other_blocks_are_other_candidates_and_the_text_is_the_same_every_time() -> None:
    live, completions = written("Product")
    sources = [render(completion, live).source for completion in completions]
    assert len(set(sources)) == len(sources) == 4
    assert sources == [render(completion, live).source for completion in written("Product")[1]]


SPLIT = ("float32 products on tensor cores", "float32 products on tensor cores, in smaller blocks")
PRODUCT = "tl.dot(tl.trans(b), tl.trans(a), input_precision=PRECISION"


@pytest.mark.parametrize(
    ("name", "precision", "turned"),
    [
        ("Product", "tf32x3", True),
        ("Batched", "tf32x3", True),
        ("Layer", "tf32x3", True),
        ("Turned", "bf16x6", False),
        ("BothTurned", "tf32x3", False),
        ("Long", "tf32x3", True),
        ("TwoProducts", "bf16x6", False),
    ],
)
def test_float32_products_on_tensor_cores_are_right(
    name: str, precision: str, turned: bool, judge: Judge
) -> None:
    live, completions = written(name, 5)
    candidates = [render(each, live) for each in completions if each.note in SPLIT]
    for candidate in candidates:
        assert f"PRECISION: tl.constexpr = '{precision}'" in candidate.source
        assert "input_precision=PRECISION" in candidate.source
        _, verdict = judge_as_shipped(judge, candidate, Criteria(live, timing=False))
        assert verdict.accepted, verdict.reason
    assert (PRODUCT in candidates[0].source) is turned


LARGE = """
import torch
from torch import nn

from pytest_kernelllm import triton_candidate


@triton_candidate(inputs=lambda rows=1024: torch.randn(rows, 1022), dims={"rows": (1, 4096)})
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(1022, 1100)

    def forward(self, x):
        return torch.relu(self.linear(x))


@triton_candidate(inputs=lambda: (torch.randn(1024, 1022), torch.randn(1022, 1100)))
class Padded(nn.Module):
    def forward(self, x, y):
        return torch.relu(x @ y)


@triton_candidate(inputs=lambda: (torch.randn(2, 1024, 512), torch.randn(2, 512, 520)))
class Batched(nn.Module):
    def forward(self, x, y):
        return torch.relu(x @ y)
"""


def test_large_products_come_first_with_their_operands_in_order(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(LARGE)
    sources = {}
    for target in scan_file(tmp_path / "large.py", tmp_path).targets:
        live = pinned(tmp_path, target)
        [(_, completion)] = InductorGenerator("sm_90").generate(
            [Request(target, (0,), lambda live=live: live)]
        )
        assert completion.note == SPLIT[0]
        sources[target.name] = render(completion, live).source
    assert "scratch" not in sources["Layer"]  # free sizes are taken as they are
    assert (
        "scratch = torch.empty_strided((1024, 1024)" in sources["Padded"]
        or "1024, 1024), dtype" in sources["Padded"]
    )
    assert "scratch = torch.empty((2, 520, 512)" in sources["Batched"]


def test_only_float32_products_are_split_and_only_where_tensor_cores_are_that_much_faster() -> None:
    live, completions = written("Activated", 5)
    made = next(each for each in completions if each.note == SPLIT[0])
    source = render(made, live).source
    assert source.count("PRECISION: tl.constexpr") == 1  # of float32; bfloat16 is left to the library
    assert source.count("torch.mm(") == 1
    assert not any(each.note in SPLIT for each in written("Product", 5, "sm_86")[1])
    assert any(each.note in SPLIT for each in written("Product", 5, "sm_80")[1])
    assert not any(each.note in SPLIT for each in written("Conv1d", 5)[1])


def test_convolutions_beside_split_products_stay_with_the_library() -> None:
    live, completions = written("ConvolutionAndProduct", 5)
    made = next(each for each in completions if each.note == SPLIT[0])
    source = render(made, live).source
    assert source.count("tl.dot(") == 1 and "torch.nn.functional.conv2d(" in source


CONVOLUTIONS = [
    variant
    for variant in VARIANTS
    if variant.only == "float32 convolutions" and not variant.channels_innermost
]
INNERMOST = [variant for variant in VARIANTS if variant.channels_innermost]


@pytest.mark.parametrize(
    ("name", "padded"),
    [
        ("Grouped", False),
        ("Conv1d", True),
        ("Conv2d", True),
        ("Conv3d", True),
        ("Transposed1d", True),
        ("Transposed2d", True),
        ("Transposed3d", True),
    ],
)
def test_float32_convolutions_on_tensor_cores_are_right(
    name: str, padded: bool, judge: Judge, without_tf32: None
) -> None:
    live = pinned(PROJECT, TARGETS[name])
    made = list(cases.completions(live, gpu_for("sm_90"), CONVOLUTIONS, range(len(CONVOLUTIONS))))
    assert [each.note for each in made] == [variant.note for variant in CONVOLUTIONS]
    for completion in made:
        candidate = render(completion, live)
        assert "torch.nn.functional.conv" not in candidate.source
        assert "PRECISION: tl.constexpr = 'tf32x3'" in candidate.source
        assert "for start in range(0, LENGTH, BLOCK_K):" in candidate.source
        assert ("idx_x_w >= 0" in candidate.source) is padded
        _, verdict = judge_as_shipped(judge, candidate, Criteria(live, timing=False))
        assert verdict.accepted, verdict.reason


@pytest.mark.parametrize(
    ("name", "arch"), [("Depthwise", "sm_90"), ("Product", "sm_90"), ("Conv2d", "sm_86")]
)
def test_other_modules_and_gpus_have_no_convolutions_on_tensor_cores(name: str, arch: str) -> None:
    live = pinned(PROJECT, TARGETS[name])
    made = cases.completions(live, gpu_for(arch), CONVOLUTIONS, range(len(CONVOLUTIONS)))
    assert not [each for each in made if each.text]


def test_a_pointwise_convolution_has_no_positions_to_go_through() -> None:
    live = pinned(PROJECT, TARGETS["Pointwise"])
    [made, *_] = cases.completions(live, gpu_for("sm_90"), CONVOLUTIONS, range(len(CONVOLUTIONS)))
    source = render(made, live).source
    assert "PRECISION: tl.constexpr = 'tf32'" in source and "LENGTH" not in source


@pytest.mark.parametrize("name", [name for name in TARGETS if name.startswith("Strided")])
def test_transposed_convolutions_with_strides_are_right(name: str, judge: Judge, without_tf32: None) -> None:
    live = pinned(PROJECT, TARGETS[name])
    variants = [*CONVOLUTIONS, TEMPLATES]
    made = [each for each in cases.completions(live, gpu_for("sm_90"), variants, range(9)) if each.text]
    assert made
    for completion in made:
        candidate = render(completion, live)
        assert "torch.nn.functional.conv" not in candidate.source
        _, verdict = judge_as_shipped(judge, candidate, Criteria(live, timing=False))
        assert verdict.accepted, verdict.reason


@pytest.mark.parametrize("name", ["Conv1d", "Conv2d", "Conv3d"])
def test_channels_are_innermost_in_what_is_read_and_nowhere_else(
    name: str, judge: Judge, without_tf32: None
) -> None:
    live = pinned(PROJECT, TARGETS[name])
    made = list(cases.completions(live, gpu_for("sm_90"), INNERMOST, range(len(INNERMOST))))
    for completion in made:
        candidate = render(completion, live)
        assert "stride_xc = 1\n" in candidate.source
        assert "idx_x_c = tl.arange(0, BLOCK_K)" in candidate.source
        _, verdict = judge_as_shipped(judge, candidate, Criteria(live, timing=False))
        assert verdict.accepted, verdict.reason


def test_few_channels_are_read_as_they_lie() -> None:
    live = pinned(PROJECT, TARGETS["Transposed2d"])  # its groups have 8
    for completion in cases.completions(live, gpu_for("sm_90"), INNERMOST, range(len(INNERMOST))):
        assert "stride_xc = 30\n" in render(completion, live).source


@pytest.mark.parametrize("name", ["Conv2d", "Strided2d"])
def test_where_settings_allow_tf32_it_is_one_product_and_the_verdict_needs_a_gpu(
    name: str, judge: Judge
) -> None:
    live = pinned(PROJECT, TARGETS[name])
    [made] = cases.completions(live, gpu_for("sm_90"), CONVOLUTIONS[:1], [0])
    candidate = render(made, live)
    assert "PRECISION: tl.constexpr = 'tf32'" in candidate.source
    _, verdict = judge_as_shipped(judge, candidate, Criteria(live, timing=False))
    assert verdict.verdict == "inconclusive"
    assert "in TF32, which PyTorch's settings allow here, that much is right" in verdict.reason
    assert verdict.lacks == "a GPU"


def test_a_kernel_in_tf32_that_breaks_another_rule_is_rejected(judge: Judge) -> None:
    live = pinned(PROJECT, TARGETS["Strided2d"])
    [made] = cases.completions(live, gpu_for("sm_90"), CONVOLUTIONS[:1], [0])
    candidate = render(made, live)
    loses_nan = replace(candidate, source=candidate.source.replace("PropagateNan.ALL", "PropagateNan.NONE"))
    verdict = judge.judge(loses_nan, Criteria(live, timing=False))
    assert verdict.verdict == "rejected"
    assert "expected nan" in verdict.reason


def test_a_product_without_rows_and_length_is_written() -> None:
    exported = export(Product(), ["x", "y"], (torch.randn(0, 0), torch.randn(0, 24)), {})
    assert lower(exported, gpu_for("sm_90"), TEMPLATES).source


@pytest.mark.parametrize(
    ("layer", "inputs"),
    [
        (lambda: torch.nn.ConvTranspose2d(3, 4, 3, stride=2).double(), (2, 3, 4, 5)),
        (lambda: torch.nn.ConvTranspose2d(20, 1, 3, stride=2, padding=3), (1, 20, 3, 3)),
        (lambda: torch.nn.ConvTranspose2d(4, 4, 3, stride=3), (2, 4, 4, 5)),
        (lambda: torch.nn.ConvTranspose2d(4, 4, 3, stride=2, dilation=2), (2, 4, 4, 5)),
        (lambda: torch.nn.ConvTranspose2d(4, 4, 3, stride=2), (2, 4, 4, 5)),
    ],
    ids=["float64", "one output", "another stride", "dilation", "others"],
)
def test_what_the_template_cannot_compute_stays_with_the_library(
    layer: Callable[[], torch.nn.Module], inputs: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    module = layer()
    x = torch.randn(inputs, dtype=next(module.parameters()).dtype)
    source = lower(export(module, ["input"], (x,), {}), gpu_for("sm_90"), TEMPLATES).source
    assert ("extern_kernels.convolution(" in source) is (request.node.callspec.id != "others")


class Product(torch.nn.Module):
    """A product of two matrices."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y


def test_what_the_sizes_decide_is_decided_in_the_text() -> None:
    live, completions = written("Product", 1)
    [source] = [render(completion, live).source for completion in completions]
    assert "if M * N == 0" not in source and "stride_am" not in source
    assert "tl.dot(" in source and "num_stages=" in source
