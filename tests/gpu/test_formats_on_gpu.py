"""Other projects' forms on a GPU, where benchmarks are cases, too, and are timed."""

import pytest
from gpumode_problem import SUBMISSION, lay_out

from kernelllm_judge.candidate import Speed
from kernelllm_judge.tool.warm import WarmJudge

pytestmark = pytest.mark.gpu


def test_a_submission_is_timed_at_the_sizes_of_the_benchmarks(tmp_path):
    folder = lay_out(tmp_path)
    with WarmJudge("cuda", deadline=120) as warm:
        verdict = warm.judge(str(folder), None, Speed()).verdict
        assert verdict.accepted, verdict.reason
        assert {"test-1", "test-2", "benchmark-1"} == {timing.name for timing in verdict.timing}
        wrong = SUBMISSION.replace("+ shift", "- shift")
        assert warm.judge(str(folder), wrong, Speed()).verdict.rule == "values"
