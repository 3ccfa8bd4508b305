"""``pytest --kernelllm`` compares adopted kernels with recorded runs.

The verdicts are those that a GPU would leave: the run finds them in its store, as a second run does.
"""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from projects import COMMAND, GOOD
from recorded import adopt, know, run_of, timing, upgraded, verdict

from kernelllm_judge.environment import find_environment
from pytest_kernelllm.report.markdown import job_summary
from pytest_kernelllm.report.read import read_report
from pytest_kernelllm.store import Store

GPU = (
    "--kernelllm",
    "--kernelllm-generator=files",
    "--kernelllm-set=candidates_dir=.",
    "--kernelllm-device=cuda",
)
OLD_RUN = "20201101-120000-aaaa"
SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / "report.json"


@pytest.fixture
def project(pytester, monkeypatch):
    """A project whose adopted kernel ran 1.31x as fast as eager with torch 2.11, and 1.12x with today's."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pytester.target, kernel = adopt(pytester.path)
    pytester.here = find_environment("cuda")
    know(
        pytester.path,
        pytester.target,
        kernel,
        verdict(kernel, pytester.here, timing(1.12, kernel=11.7)),
    )
    old = verdict(kernel, upgraded(pytester.here, "2.11.0"), timing(1.31))
    pytester.old = run_of(pytester.target, old, OLD_RUN)
    Store(pytester.path).runs.put(pytester.old)
    return pytester


def test_an_upgrade_that_slows_an_adopted_kernel_is_a_red_test_that_says_so(project):
    result = project.runpytest_subprocess(*GPU, "--kernelllm-report=report.json")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            f"slower than recorded: 1.31x -> 1.12x since torch 2.11.0 -> {project.here.torch}; the kernel takes "
            f"10 -> 11.7 µs, eager 13.1 -> 13.1 µs (run {OLD_RUN})",
            "kernel: scale_kernel*",
            "*Scale*slower than recorded*",
            "1 adopted kernel recorded as run *",
        ]
    )
    content = (project.path / "report.json").read_bytes()
    jsonschema.validate(json.loads(content), json.loads(SCHEMA.read_text()))
    report = read_report(content)
    [target] = report.targets
    assert target.history.slower
    assert [(point.run, point.slower) for point in target.history.points] == [(OLD_RUN, False), ("", True)]
    summary = job_summary(report)
    assert "**adopted kernel is slower**: `slower than recorded: 1.31x -> 1.12x since torch" in summary
    assert f"| `{OLD_RUN}` | `2020-11-01` | 1.31× [1.3, 1.32] | `2.11.0` |" in summary

    # It stays red, and is recorded once.
    project.runpytest_subprocess(*GPU).assert_outcomes(passed=1, failed=1)
    assert len(list(Store(project.path).runs)) == 2
    # Until somebody takes it for the new level.
    accepted = project.runpytest_subprocess(*GPU, "--kernelllm-compare=off", "--kernelllm-save=torch-2.13")
    accepted.assert_outcomes(passed=2)
    accepted.stdout.fnmatch_lines(["1 adopted kernel recorded as run * (torch-2.13)."])
    result = project.runpytest_subprocess(*GPU)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*Scale*adopted, recorded 1.12x*"])
    assert project.runpytest_subprocess(*GPU, "--kernelllm-compare", OLD_RUN).ret == 1


def test_pytest_xdists_workers_compare_and_one_process_records(project):
    result = project.runpytest_subprocess(*GPU, "-n2", "--kernelllm-set=compare_fail=20%")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*Scale*adopted, recorded 1.31x*"])
    assert [run.kernels[0].slower for run in Store(project.path).runs] == [False, False]


def test_another_gpu_has_no_recorded_run(project):
    other = replace(project.old, environment=replace(project.old.environment, gpu="NVIDIA H100"))
    Store(project.path).runs.put(other)
    result = project.runpytest_subprocess(*GPU)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["Scale: not compared: no recorded run on this GPU*(recorded on NVIDIA H100)."]
    )


def test_without_a_gpu_the_skipped_test_says_with_what_it_is_not_compared(project):
    target, kernel = adopt(project.path)
    know(project.path, target, kernel, verdict(kernel, find_environment("cpu")))
    result = project.runpytest_subprocess(*GPU[:-1], "--kernelllm-device=cpu", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*Scale: there is no GPU, so not compared with the recorded 1.31x*"])


def test_an_upgrade_that_makes_an_adopted_kernel_wrong_says_so(pytester):
    target, right = adopt(pytester.path)
    here = find_environment("cpu")
    Store(pytester.path).runs.put(run_of(target, verdict(right, upgraded(here, "2.11.0")), OLD_RUN))
    target, wrong = adopt(pytester.path, GOOD.replace("+ 1)", "+ 2)"))
    rejected = replace(verdict(wrong, here), verdict="rejected", rule="numerics", reason="x is wrong at 0")
    know(pytester.path, target, wrong, rejected)
    result = pytester.runpytest_subprocess(*GPU[:-1], "--kernelllm-device=cpu")
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "*is wrong at*",
            f"it was right in run {OLD_RUN}; since then changed: torch 2.11.0 -> *, kernel * -> *",
        ]
    )


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("--kernelllm-compare=nightly", "`compare` is 'nightly', but no recorded runs have this name"),
        ("--kernelllm-set=compare_fail=0.1", "expected a percentage below 100%, such as 10%"),
        ("--kernelllm-set=compare_fail=100%", "expected a percentage below 100%, such as 10%"),
        ("--kernelllm-save=../up", "names no run"),
        ("--kernelllm-save=latest", "names no run"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(project, argument, sentence):
    result = project.runpytest_inprocess(*GPU, argument)
    assert result.ret == 4
    assert sentence in " ".join(result.stderr.str().split())


def test_the_store_lists_runs(project):
    def store(*arguments):
        return project.run(*COMMAND, "store", *arguments)

    known = Store(project.path)
    known.runs.put(
        run_of(project.target, verdict(adopt(project.path)[1], project.here), "20201102-120000-bbbb", "named")
    )
    assert store("runs").outlines == [
        f"{OLD_RUN}  -             no GPU  torch 2.11.0  triton {project.here.triton}  1 kernel",
        f"20201102-120000-bbbb  named         no GPU  torch {project.here.torch}  triton {project.here.triton}  1 kernel",
    ]
    program = project.old.kernels[0].kernel_hash[:12]
    assert store("runs", OLD_RUN[:9]).outlines == [f"{program}    1.31x  layers.py::Scale"]
    assert "1 verdict and 2 recorded runs intact" in store("verify").stdout.str()
    assert store("runs", "nightly").ret == 2
