"""The judge on a GPU: real launches, shared memory, and timing."""

import pytest
from loading import load
from projects import GOOD, LAYERS

from kernelllm_judge.core.records import Completion
from kernelllm_judge.environment import find_environment
from kernelllm_judge.judging import Criteria, Judge
from kernelllm_judge.render.render import render

WIDE = LAYERS.replace("n=6", "n=65536").replace('dims={"n": (1, 64)}', 'dims={"n": (1, 131072)}')


@pytest.fixture(scope="module")
def decide(tmp_path_factory):
    path = tmp_path_factory.mktemp("judged") / "layers.py"
    path.write_text(WIDE)
    live = load(path)
    environment = find_environment("cuda")
    with Judge(environment, deadline=30) as judge:

        def decide(text, **criteria):
            candidate = render(Completion("files", 0, text, "kernel_module"), live, on_gpu=True)
            return judge.judge(candidate, Criteria(live, **criteria))

        yield decide


def test_an_honest_kernel_is_timed_against_eager_and_compile(decide):
    verdict = decide(GOOD, min_speedup=0.0)
    assert verdict.accepted, verdict.reason
    [timing] = verdict.timing
    assert timing.case == "default"
    assert 0 < timing.kernel.p20 <= timing.kernel.p50 <= timing.kernel.p80
    assert timing.samples.keys() == {"kernel", "eager", "compiled"}
    calls = timing.samples["kernel"]
    assert 0 < calls.least <= timing.kernel.p20 and timing.kernel.p80 <= calls.most
    assert calls.least <= calls.mean <= calls.most and calls.calls > 1
    assert timing.speedup.low <= timing.speedup.value <= timing.speedup.high
    assert timing.compiled is not None
    assert timing.bytes == 2 * 65536 * 64 * 4 + 64 * 4
    assert 0 < timing.roofline_share < 1.2
    assert any(c.name == "clocks agree" and c.passed for c in verdict.checks)
    assert verdict.environment.gpu
    assert verdict.environment.arch.startswith("sm_")


def test_a_threshold_out_of_reach_rejects_a_right_kernel(decide):
    verdict = decide(GOOD, min_speedup=1000.0)
    assert (verdict.verdict, verdict.stage) == ("rejected", "timing")
    assert verdict.correct
    assert "not fast enough" in verdict.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("+ 1)", "+ 1.0001)"), "is wrong at"),
        (("out_ptr + row + columns,", "out_ptr + row + columns + (1 << 40),"), "writes element 10995116"),
        (("x * tl.load(weight_ptr + columns)", "x"), "is wrong at"),
        (("    return out", "    x.zero_()\n    return out"), "changes its input `x`"),
        (("(x.shape[0],)", "(x.shape[0] - 1,)"), "is wrong at"),
        (
            ("scale_kernel[(x.shape[0],)](x, self.weight, out, WIDTH=64)", "out.copy_(x * self.weight + 1)"),
            "no Triton kernel",
        ),
        (("tl.arange(0, WIDTH)", "tl.arange(0, WIDTH - 1)"), "power of 2"),
    ],
)
def test_every_fault_is_named_and_the_next_candidate_is_unharmed(decide, change, reason):
    assert change[0] in GOOD
    verdict = decide(GOOD.replace(*change), timing=False)
    assert verdict.verdict == "rejected"
    assert reason in verdict.reason
    assert decide(GOOD, timing=False).accepted


def test_a_kernel_that_never_ends_is_ended(decide):
    text = GOOD.replace("torch.empty_like", "torch.zeros_like").replace(
        "    x = tl.load",
        "    while tl.atomic_add(out_ptr + row, 0.0) != float('inf'):\n        pass\n    x = tl.load",
    )
    assert "zeros_like" in text
    verdict = decide(text, timing=False)
    assert verdict.verdict == "rejected"
    assert "deadline" in verdict.reason
    assert decide(GOOD, timing=False).accepted
