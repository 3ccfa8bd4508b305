"""Infinite numbers and NaN in a verdict: kept by the store, the report and the benchmark, in JSON that others can read."""

import json
import math

import jsonschema
import pytest
from standing_now import NOW

from kernelllm_judge.core.records import (
    Candidate,
    CandidateId,
    Check,
    Environment,
    KernelRecord,
    Ratio,
    Spread,
    Target,
    Terms,
    Timing,
    Verdict,
)
from pytest_kernelllm.beside.passk.records import Benchmark, TargetScore
from pytest_kernelllm.beside.passk.schema import passk_schema
from pytest_kernelllm.beside.passk.scores import sample_of, score, together
from pytest_kernelllm.beside.passk.table import render_benchmark
from pytest_kernelllm.beside.verify.pairs import Judged, Pair
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.report.json import build_report, write_report
from pytest_kernelllm.report.markdown import job_summary, pull_request_section
from pytest_kernelllm.report.read import read_report
from pytest_kernelllm.report.schema import report_schema
from pytest_kernelllm.report.table import render_table
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.verdicts import VerdictKey

GPU = Environment("cuda", "H200", arch="sm_90")
TARGET = Target("a.py", "A", 1, "b" * 64, "call")
CANDIDATE = Candidate(TARGET.id, "x = 1", "files")


def strict(text):
    return json.loads(text, parse_constant=pytest.fail)


@pytest.fixture(params=[math.inf, -math.inf, math.nan])
def outcome(request):
    spread, ratio = Spread(*[request.param] * 3), Ratio(*[request.param] * 3)
    timing = Timing("default", *[spread] * 4, ratio, spread, spread, ratio, *[request.param] * 2)
    checks = (Check("output 0", True, request.param, request.param),)
    verdict = Verdict(
        "accepted", "timing", "", CANDIDATE.kernel_hash, GPU, checks=checks, timing=(timing,), versions=NOW
    )
    return Outcome(TARGET, CandidateId("files", 0), CANDIDATE, verdict, cost=request.param)


def test_the_store_keeps_it(outcome, tmp_path):
    key = VerdictKey(TARGET.source_hash, CANDIDATE.kernel_hash, GPU, Terms())
    record = KernelRecord(TARGET.id, TARGET.source_hash, CANDIDATE, outcome.verdict, "2026-01-01")
    Store(tmp_path, "store").verdicts.put(key, record)
    assert repr(Store(tmp_path, "store").verdicts.get(key)) == repr(record)


def test_the_report_has_it(outcome, tmp_path):
    write_report(tmp_path / "report.json", build_report(GPU, [outcome], {TARGET.id: "a.patch"}))
    content = (tmp_path / "report.json").read_bytes()
    jsonschema.validate(strict(content), report_schema())
    report = read_report(content)
    assert repr(report.targets[0].candidates[0].verdict) == repr(outcome.verdict)
    number = str(outcome.verdict.checks[0].measured).removeprefix("-")
    for text in (
        render_table([outcome], {}, 110, False),
        job_summary(report),
        pull_request_section(report, "digest", "run"),
    ):
        assert number in text


def test_a_line_of_verify_has_it(outcome):
    judged = Judged(Pair("a", "reference.py", None), outcome.verdict)
    line = strict(judged.to_line())
    assert repr(Verdict.from_json({k: v for k, v in line.items() if k != "name"})) == repr(outcome.verdict)
    assert f"{outcome.verdict.checks[0].measured}x eager" in judged.in_words()


def test_the_benchmark_has_it(outcome):
    sample = sample_of(outcome)
    figures = score([sample], [1], timed=True)
    total = together([figures], [1])
    benchmark = Benchmark(
        "files", "", "", 1, GPU, True, (TargetScore(TARGET, figures, (sample,)),), total, ()
    )
    data = strict(json.dumps(benchmark.to_json(), allow_nan=False))
    jsonschema.validate(data, passk_schema())
    assert repr(Benchmark.from_json(data)) == repr(benchmark)
    assert "A a.py" in render_benchmark(benchmark, 110, False)
