"""Times as pytest-benchmark reads them: its own ``compare`` does, and nothing in them was not measured."""

import json
import subprocess
import sys
from dataclasses import replace

import pages
import pytest
from projects import COMMAND

from kernelllm_judge.core.records import Sample
from pytest_kernelllm.report.benchmark import left_out, write_benchmarks
from pytest_kernelllm.report.json import write_report

SAMPLE = Sample(200, 9.5, 31.0, 12.0, 1.5, (11.0, 12.5), (20, 3))


def measured(speed=2.0, sample=SAMPLE, case="default"):
    """A timing as this version keeps it."""
    slow = replace(sample, **{name: getattr(sample, name) * speed for name in ("least", "most", "mean")})
    samples = {"kernel": sample, "eager": slow, "compiled": slow}
    return replace(pages.timing(case, speed), samples=samples)


def report(*timings, **more):
    verdict = pages.verdict(environment=pages.GPU, timings=timings, stage="timing")
    suggested = pages.candidate(3, pages.KERNEL, verdict)
    adopted = replace(suggested, id="adopted", generator="adopted")
    return pages.report(
        pages.target("Scale", suggested, pages.candidate(1, pages.KERNEL, verdict), best=suggested),
        pages.target("Norm", adopted),
        environment=pages.GPU,
        **more,
    )


def written(tmp_path, found, root=None):
    file = tmp_path / "out" / "benchmark.json"
    left = write_benchmarks(file, found, root)
    return json.loads(file.read_text()), left


def test_there_is_one_benchmark_for_each_implementation_of_the_kernel_that_counts(tmp_path):
    content, left = written(tmp_path, report(measured()))
    assert left == 0
    assert [each["fullname"] for each in content["benchmarks"]] == [
        f"src/layers.py::{kernel}[default-{what}]"
        for kernel in ("Scale::suggested", "Norm::adopted")
        for what in ("kernel", "eager", "compiled")
    ]
    first = content["benchmarks"][0]
    assert first["name"] == "Scale::suggested[default-kernel]"
    assert first["group"] == "src/layers.py::Scale::suggested[default]"
    assert first["extra_info"]["candidate"] == "inductor-3"
    assert first["extra_info"]["speedup over eager"] == [2.0, 1.9, 2.08]
    assert (content["machine_info"]["gpu"], content["datetime"]) == ("Some GPU", "2026-01-02T03:04:05+00:00")


def test_its_figures_are_those_that_were_measured_in_seconds(tmp_path):
    content, _ = written(tmp_path, report(measured()))
    stats = content["benchmarks"][0]["stats"]
    assert {name: stats[name] for name in ("min", "max", "mean", "stddev", "q1", "q3", "median")} == {
        "min": 9.5e-6,
        "max": 31e-6,
        "mean": 12e-6,
        "stddev": 1.5e-6,
        "q1": 11e-6,
        "q3": 12.5e-6,
        "median": 25e-6,
    }
    assert (stats["rounds"], stats["iterations"], stats["outliers"]) == (200, 1, "20;3")
    assert stats["ops"] * stats["mean"] == pytest.approx(1)
    assert stats["total"] == pytest.approx(200 * 12e-6)


def test_times_of_which_only_percentiles_are_known_are_left_out_and_counted(tmp_path):
    content, left = written(tmp_path, report(pages.timing(), measured(case="bfloat16")))
    assert {each["params"]["case"] for each in content["benchmarks"]} == {"bfloat16"}
    assert left == 2
    assert "leaves out the times of 2 cases: an earlier version measured them" in left_out(left)
    assert left_out(0) == ""


def test_the_commit_is_that_of_the_project_and_unknown_where_it_is_not_known(tmp_path):
    commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"]
    for command in (["init", "-q", "-b", "main"], commit):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    known, _ = written(tmp_path, report(measured()), tmp_path)
    assert known["commit_info"] == {
        "id": head.stdout.strip(),
        "dirty": False,
        "project": tmp_path.name,
        "branch": "main",
    }
    unknown, _ = written(tmp_path, report(measured()))
    assert unknown["commit_info"]["id"] == "unknown"


def test_pytest_benchmark_compares_two_of_them(tmp_path):
    pytest.importorskip("pytest_benchmark")
    for name, sample in (("base", SAMPLE), ("change", replace(SAMPLE, least=4.75, mean=6.0))):
        write_report(tmp_path / "report.json", report(measured(sample=sample)))
        command = [*COMMAND, "report", "report.json", "--benchmark-json", f"{name}.json"]
        subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest_benchmark",
            "compare",
            "base.json",
            "change.json",
            "--group-by=fullname",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout.partition("benchmark 'src/layers.py::Norm::adopted[default-kernel]': 2 tests")[2]
    rows = table.splitlines()[3:5]
    assert "change" in rows[0] and "4.7500 (1.0)" in rows[0] and "200" in rows[0]
    assert "base" in rows[1] and "9.5000 (2.00)" in rows[1]
