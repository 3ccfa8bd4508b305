"""Inductor's Triton: generated for real modules, rendered, and run in Triton's interpreter against the originals."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fusing import errors, from_inductor, inductor, live

from kernelllm_judge.core.kernel_module import read_supports
from kernelllm_judge.static_check.static_check import find_violations
from pytest_kernelllm.generate.inductor.generator import InductorGenerator
from pytest_kernelllm.generate.protocol import Request

pytestmark = pytest.mark.slow

SAMPLES = {"LlamaRMSNorm": 3, "CrossEntropy": 2, "Cumsum": 2, "DepthwiseTanh": 2}
"""How many variants are tried of each target; one of the others."""
TARGETS = (
    "LlamaRMSNorm",
    "GemmaRMSNorm",
    "T5LayerNorm",
    "NewGELUActivation",
    "LlamaMLP",
    "CrossEntropy",
    "NormGELU",
    "HingeLoss",
    "AddNorm",
    "Rotary",
    "Swapped",
    "GroupNormReLU",
    "ConvReLU",
    "Softmax",
    "Cumsum",
    "Argmax",
    "Transpose",
    "MaskedSoftmax",
    "BySize",
    "DepthwiseTanh",
    "Pooled",
)
TOLERANCE = {"float32": 2e-6, "bfloat16": 1e-2}
"""Relative to the largest value. In bfloat16 the interpreter truncates where a GPU rounds."""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    candidates = {}
    for name in TARGETS:
        samples = SAMPLES.get(name, 1)
        for index in range(samples):
            candidates[f"{name}_{index}"] = (name, from_inductor(name, index, samples))
    return errors(tmp_path_factory.mktemp("inductor"), candidates)


@pytest.mark.parametrize("name", TARGETS)
def test_every_case_and_size_agrees_with_the_original(results: dict[str, Any], name: str) -> None:
    found = {key: value for key, value in results.items() if key.startswith(f"{name}_")}
    assert len(found) >= len(live(name).cases) * SAMPLES.get(name, 1)
    for key, error in found.items():
        assert isinstance(error, float), f"{key}: {error}"
        assert error <= TOLERANCE["bfloat16" if "bfloat16" in key else "float32"], key


def test_one_kernel_serves_both_dtypes_and_every_size() -> None:
    source = from_inductor("LlamaRMSNorm", 0, 3).source
    assert source.count("@triton.jit") == 1
    for domain in read_supports(source):
        assert domain.inputs["hidden_states"].shape == ("batch", "seq", 96)
        assert domain.dims == {"batch": (1, 8), "seq": (1, 8)}  # 64 rows together, without a GPU


def test_the_epsilon_is_an_argument_and_no_longer_pinned() -> None:
    source = from_inductor("LlamaRMSNorm", 0, 3).source
    assert "self.variance_epsilon" in source and "1e-06" not in source
    assert all("variance_epsilon" not in domain.attributes for domain in read_supports(source))
    assert all("weight" in domain.attributes for domain in read_supports(source))


def test_a_rendered_module_holds_nothing_of_the_compiler() -> None:
    for name in ("LlamaRMSNorm", "CrossEntropy", "NormGELU"):
        source = from_inductor(name, 0, SAMPLES.get(name, 1)).source
        for word in (
            "_inductor",
            "libdevice",
            "triton_helpers",
            "torch._C",
            "cuda",
            "tmp",
            "reinterpret",
            "buf",
        ):
            assert word not in source, word


def test_kernels_and_arguments_have_names() -> None:
    source = from_inductor("LlamaRMSNorm", 0, 3).source
    assert "def llama_rms_norm_kernel(\n    hidden_states_ptr, weight_ptr, out_ptr, n_rows" in source
    assert "def forward(self, hidden_states):" in source


def test_cases_that_need_different_kernels_get_conditions() -> None:
    source = from_inductor("MaskedSoftmax").source
    assert "if mask is None:" in source and "_forward_plain" in source and "_forward_masked" in source


def test_a_target_whose_path_depends_on_a_size_gets_that_size_only() -> None:
    (domain,) = read_supports(from_inductor("BySize").source)
    assert domain.dims == {} and domain.inputs["x"].shape == (4, 16)


def test_variants_are_distinct_and_say_what_they_are() -> None:
    made = inductor("LlamaRMSNorm", 3)
    assert len({c.note for c in made}) == len(made) == 3
    assert len({from_inductor("LlamaRMSNorm", i, 3).source for i in range(3)}) == 3
    assert [c.index for c in made] == [0, 1, 2]


def test_the_first_ones_can_be_left_out() -> None:
    target = live("Cumsum")
    later = [c for _, c in InductorGenerator().generate([Request(target.target, (1,), lambda: target)])]
    assert [c.index for c in later] == [1]
    assert later[0].text == inductor("Cumsum", 2)[1].text


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Median", "nothing but library calls"),
        ("Dropout", "random numbers"),
        ("BatchNorm", "changes `norm.running_mean` in place"),
    ],
)
def test_a_target_without_a_kernel_says_why(name: str, reason: str) -> None:
    (completion,) = inductor(name)
    assert completion.text == ""
    assert reason in completion.note


def test_nothing_of_torch_stays_changed() -> None:
    import torch._inductor.config as config
    import triton
    from torch._inductor.graph import GraphLowering

    before = config.layout_optimization, GraphLowering.codegen, GraphLowering.compile_to_module
    environment, level = dict(os.environ), logging.getLogger("torch").level
    active = getattr(triton.runtime.driver, "_active", None)
    inductor.__wrapped__("Cumsum", 1)
    assert (config.layout_optimization, GraphLowering.codegen, GraphLowering.compile_to_module) == before
    assert not torch.cuda.is_available() or torch.cuda.get_device_properties(0).name
    assert getattr(triton.runtime.driver, "_active", None) is active
    assert (dict(os.environ), logging.getLogger("torch").level) == (environment, level)
    assert torch.equal(torch.compile(torch.sin, backend="eager")(torch.ones(2)), torch.sin(torch.ones(2)))


def test_the_identity_costs_no_import_of_torch() -> None:
    code = (
        "import sys; from pytest_kernelllm.generate.inductor.generator import InductorGenerator;"
        "print(InductorGenerator().identity()); assert 'torch' not in sys.modules and 'triton' not in sys.modules"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("inductor/") and " sm_90 render=" in done.stdout


@pytest.mark.parametrize("name", TARGETS)
def test_what_inductor_writes_today_passes_the_static_check(name: str) -> None:
    assert find_violations(from_inductor(name).source) == []


def test_a_failure_on_one_target_leaves_the_others_theirs() -> None:
    good, broken = live("Transpose"), replace(live("Transpose"), cases=(None,))
    requests = [Request(each.target, (0,), lambda each=each: each) for each in (broken, good)]
    (_, refused), (_, written) = InductorGenerator().generate(requests)
    assert refused.text == "" and written.text
    assert re.fullmatch("The inductor generator failed on this target: .*; please report it", refused.note)


def test_copies_around_a_library_call_are_no_candidate() -> None:
    [completion] = inductor("Dilated")
    assert completion.text == ""
    assert completion.note == "nothing but library calls is left after fusion (convolution)"


def test_a_depthwise_convolution_is_a_kernel_at_first() -> None:
    first, second = inductor("DepthwiseTanh", 2)
    assert first.note == "depthwise convolutions as kernels"
    assert "extern_kernels.convolution" not in first.text
    assert "extern_kernels.convolution" in second.text
