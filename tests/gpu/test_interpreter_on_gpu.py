"""What the patched interpreter computes is what a GPU computes, and memory is checked beside a GPU."""

import pytest
from gpu_kernels import CHECKS
from loading import load
from projects import GOOD, LAYERS

from kernelllm_judge.core.records import Completion
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render


@pytest.mark.parametrize("name", CHECKS)
def test_a_gpu_computes_what_the_interpreter_computes(name):
    CHECKS[name]("cuda")


@pytest.fixture(scope="module")
def decide(tmp_path_factory):
    path = tmp_path_factory.mktemp("sanitized") / "layers.py"
    path.write_text(LAYERS)
    live = load(path)
    with Judge(find_environment("cuda"), deadline=30) as judge:

        def decide(text):
            candidate = render(Completion("files", 0, text, "kernel_module"), live, on_gpu=True)
            return judge.judge(candidate, Criteria(live, timing=False))

        yield decide


def test_an_honest_kernel_has_its_memory_accesses_checked(decide):
    verdict = decide(GOOD)
    assert verdict.accepted, verdict.reason
    [check] = [check for check in verdict.checks if check.name.startswith("memory accesses")]
    assert check.detail == ""


def test_a_discarded_read_beyond_the_end_is_found(decide):
    loads = "x = tl.load(x_ptr + row + columns)"
    ahead = "ahead = tl.load(x_ptr + row + WIDTH + columns)"
    verdict = decide(GOOD.replace(loads, f"{ahead}\n    {loads}\n    x = tl.where(columns >= 0, x, ahead)"))
    assert verdict.rule == "memory"
    assert "of `x_ptr` (the input `x`)" in verdict.reason


def test_a_race_is_found_that_does_not_change_the_result(decide):
    text = GOOD.replace(
        "tl.store(out_ptr + row", "tl.store(weight_ptr, tl.load(weight_ptr))\n    tl.store(out_ptr + row"
    )
    verdict = decide(text)
    assert verdict.rule == "memory"
    assert "race for element 0 of `weight_ptr` (`self.weight`)" in verdict.reason


def test_what_the_interpreter_cannot_run_is_stated(decide):
    text = GOOD.replace("import torch\n", "import torch\nfrom triton.language.extra import libdevice\n")
    verdict = decide(text.replace("+ 1)", "+ 1 + libdevice.tgamma((columns * 0 + 1).to(tl.float32)) * 0)"))
    assert verdict.accepted, verdict.reason
    assert any("memory accesses were not checked in Triton's interpreter" in c.detail for c in verdict.checks)
