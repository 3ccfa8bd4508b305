"""A kernel for one shape stays right for it where nobody asked for others."""

import pytest
from projects import GOOD, LAYERS

from kernelllm_judge.candidate import Speed, judge_candidate
from kernelllm_judge.core.kernel_module import read_supports
from kernelllm_judge.target.live import load_target
from pytest_kernelllm.discover.scan import scan_file

FOR_SIX_ROWS = GOOD.replace("(x.shape[0],)", "(6,)")
WRONG = GOOD.replace("+ 1", "+ 2")


@pytest.fixture(scope="module")
def judged(judge, tmp_path_factory):
    root = tmp_path_factory.mktemp("project")
    (root / "layers.py").write_text(LAYERS.replace(', dims={"n": (1, 64)}', ""))
    [target] = scan_file(root / "layers.py", root).targets
    live = load_target(root, target)
    return lambda text: judge_candidate(judge, live, text, "", Speed(timing=False))


def test_a_kernel_for_all_sizes_ships_for_all(judged):
    source, verdict = judged(GOOD)
    assert verdict.accepted, verdict.reason
    assert [domain.dims for domain in read_supports(source)] == [{"n": (1, 6)}]


def test_a_kernel_for_the_given_shape_ships_for_this_shape(judged):
    source, verdict = judged(FOR_SIX_ROWS)
    assert verdict.accepted, verdict.reason
    [domain] = read_supports(source)
    assert domain.dims == {} and domain.inputs["x"].shape == (6, 64)


def test_what_is_wrong_is_rejected_with_its_first_reason(judged):
    source, verdict = judged(WRONG)
    assert verdict.verdict == "rejected"
    assert [domain.dims for domain in read_supports(source)] == [{"n": (1, 6)}]
