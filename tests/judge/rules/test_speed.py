"""The rule ``speed`` compares with the baseline that the user chose."""

from dataclasses import replace

import pytest

from kernelllm_judge.core.records import Ratio, Spread, Timing
from kernelllm_judge.findings import Decision, Findings
from kernelllm_judge.rules.timing import Speed

SPREAD = Spread(1.0, 1.0, 1.0)
FAST, SLOW = Ratio(2.0, 1.9, 2.1), Ratio(0.8, 0.75, 0.85)


def timing(eager: Ratio, compiled: Ratio | None) -> Timing:
    return Timing("default", SPREAD, SPREAD, SPREAD, SPREAD, eager, speedup_compiled=compiled)


@pytest.mark.parametrize(
    ("eager", "compiled", "baseline", "slower_than"),
    [
        (FAST, SLOW, "eager", ""),
        (FAST, SLOW, "compile", "torch.compile"),
        (FAST, SLOW, "best", "torch.compile"),
        (SLOW, FAST, "eager", "eager"),
        (SLOW, FAST, "compile", ""),
        (SLOW, FAST, "best", "eager"),
        (FAST, FAST, "best", ""),
        (FAST, None, "best", ""),
        (SLOW, None, "compile", "eager"),
    ],
)
def test_a_kernel_must_beat_the_baseline(eager, compiled, baseline, slower_than) -> None:
    findings = Findings((Speed(),))
    if not slower_than:
        Speed().check_speedups([timing(eager, compiled)], 1.05, baseline, findings)
        assert findings.checks[0].passed
        return
    with pytest.raises(Decision, match=f"0.80x {slower_than} "):
        Speed().check_speedups([timing(eager, compiled)], 1.05, baseline, findings)


def test_best_is_chosen_for_each_case() -> None:
    first, second = (
        timing(FAST, Ratio(1.2, 1.1, 1.3)),
        replace(timing(Ratio(1.5, 1.4, 1.6), FAST), case="long"),
    )
    findings = Findings((Speed(),))
    Speed().check_speedups([first, second], 1.05, "best", findings)
    assert [check.measured for check in findings.checks] == [1.1, 1.4]


def test_neither_pass_may_lose() -> None:
    """A kernel that gains in the forward pass and loses more in the backward pass is not faster in training."""
    forward = timing(FAST, None)
    both = replace(timing(SLOW, None), passes="forward and backward")
    findings = Findings((Speed(),))
    with pytest.raises(Decision, match=r"0.80x eager .* on default, forward and backward"):
        Speed().check_speedups([forward, both], 1.05, "eager", findings)
    assert [check.passed for check in findings.checks] == [True, False]
