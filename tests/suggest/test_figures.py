"""What stands in the header of an adopted kernel: what was measured, and nothing else."""

from dataclasses import replace

import pytest
from judged import accepted, kernel, untimed

from kernelllm_judge.core.kernel_module import digest, unmodified
from kernelllm_judge.core.records import SIZES_ASKED, Certificate, Check, Ratio, Target
from pytest_kernelllm.suggest.figures import figures, shipped, without_figures
from pytest_kernelllm.suggest.gitdiff import git_patch

TARGET = Target("my layers.py", "RMSNorm", 3, "0" * 64, "decorator")


def added(candidate, verdict) -> list[str]:
    """The header's lines that the verdict brought, each with those that continue it."""
    text = shipped(candidate, verdict).source
    assert max(map(len, text.splitlines())) < 80
    lines = text.replace("\n#   ", " ").splitlines()
    return [line for line in lines if line not in candidate.source.splitlines()]


def test_on_a_gpu_error_and_speedup_are_named_with_what_they_were_measured_on() -> None:
    candidate = kernel(TARGET)
    assert added(candidate, accepted(candidate)) == [
        "# verified: on NVIDIA H200 (sm_90), driver 570.86; torch 2.13.0, triton 3.7.1, policy 7",
        "# error: 3e-07 relative to float64, 2.4e-06 allowed",
        "# speedup: 1.83x [1.80, 1.86] over eager, 1.20x [1.10, 1.30] over torch.compile, with 95 % intervals",
        "# verify again: pytest --kernelllm-only 'my layers.py::RMSNorm'",
    ]


def test_what_is_shown_of_addresses_is_named_with_how_far() -> None:
    candidate = kernel(TARGET)
    certificate = Certificate(
        "proven for the domain", "proven for the domain", "sampled", 2, 0.3, "outputs: why"
    )
    verdict = replace(accepted(candidate), addresses=certificate)
    lines = added(candidate, verdict)
    assert lines[2] == "# addresses: bounds and races proven for the domain, outputs sampled"


def test_without_a_gpu_nothing_is_said_about_speed() -> None:
    candidate = kernel(TARGET)
    lines = added(candidate, untimed(candidate))
    assert lines[0] == (
        "# verified: in Triton's interpreter, compiled for sm_90, not timed; torch 2.13.0, triton 3.7.1, policy 7"
    )
    assert len(lines) == 3 and not any("speedup" in line for line in lines)
    asked = Check(SIZES_ASKED, True, None, None, "sizes up to n=64 were asked here; a GPU asks more")
    less = replace(untimed(candidate), checks=(asked,))
    assert added(candidate, less)[0] == f"{lines[0]}; {asked.detail}"
    on_gpu = replace(accepted(candidate), timing=())
    assert "not timed" in figures(on_gpu)["verified"] and "speedup" not in figures(on_gpu)


def test_the_error_is_the_one_nearest_to_its_bound() -> None:
    candidate = kernel(TARGET)
    checks = (
        Check("output 0 at n=1", True, 1e-3, 1.0),
        Check("gradient of `x`", True, 5e-7, 6e-7),
        Check("torch's share of the work", True, 0.9, 1.0),
        Check("compile", True, "3", None),
    )
    assert figures(replace(accepted(candidate), checks=checks))["error"].startswith(
        "5e-07 relative to float64"
    )
    assert "error" not in figures(replace(accepted(candidate), checks=checks[2:]))


def test_of_several_cases_the_mean_is_named_as_such() -> None:
    verdict = accepted(kernel(TARGET))
    [timing] = verdict.timing
    two = (timing, replace(timing, case="long", speedup=Ratio(3.66, 3.6, 3.72)))
    assert figures(replace(verdict, timing=two))["speedup"] == (
        "2.59x [2.55, 2.63] over eager, 1.20x [1.10, 1.30] over torch.compile (mean of 2 cases), "
        "with 95 % intervals"
    )


def test_a_speedup_over_compile_needs_every_case() -> None:
    verdict = accepted(kernel(TARGET))
    [timing] = verdict.timing
    two = (timing, replace(timing, case="long", speedup_compiled=None))
    assert "torch.compile" not in figures(replace(verdict, timing=two))["speedup"]


def test_sizes_that_are_not_the_case_s_own_are_named() -> None:
    verdict = accepted(kernel(TARGET))
    [timing] = verdict.timing
    small = replace(timing, note="timed at n=64, not 128: there was no memory for more")
    assert figures(replace(verdict, timing=(small,)))["speedup"].endswith(
        "with 95 % intervals; default timed at n=64, not 128: there was no memory for more"
    )


@pytest.mark.parametrize("judged", [accepted, untimed])
def test_what_is_shipped_is_what_was_judged_and_the_same_every_time(judged) -> None:
    candidate = kernel(TARGET)
    made = shipped(candidate, judged(candidate))
    assert made.source != candidate.source and unmodified(made.source)
    assert digest(made.source) == digest(candidate.source)
    assert made.kernel_hash == candidate.kernel_hash
    assert shipped(candidate, judged(candidate)) == made == shipped(made, judged(candidate))


def test_two_runs_with_other_figures_make_one_patch_but_for_those() -> None:
    candidate = kernel(TARGET)
    first, second = (
        git_patch({"k.py": (None, shipped(candidate, accepted(candidate, speedup)).source.encode())})
        for speedup in (1.83, 1.84)
    )
    assert first != second and without_figures(first) == without_figures(second)
    other = kernel(TARGET, "def forward(self, x):\n    return +x\n")
    third = git_patch({"k.py": (None, shipped(other, accepted(other)).source.encode())})
    assert without_figures(third) != without_figures(first)
