"""Every table with long names at several widths, as it is shown: one line a row, never wider than the terminal.

``UPDATE_TABLES=1`` writes the snapshots in ``tests/data/tables``.
"""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from made import benchmark
from pages import GPU, timing, verdict

from kernelllm_judge.core.records import ADOPTED, Candidate, CandidateId, KernelRecord, Ratio, Target
from kernelllm_judge.core.shorten import path, whole
from pytest_kernelllm.beside.optimize.report import UNKNOWN, ModuleReport, OptimizeReport
from pytest_kernelllm.beside.passk.records import Sample
from pytest_kernelllm.beside.passk.table import render_benchmark
from pytest_kernelllm.beside.ranking.result import RankedModule, Ranking, render as render_ranking
from pytest_kernelllm.commands.store import listed
from pytest_kernelllm.core.outcome import Outcome
from pytest_kernelllm.report.table import render_table

ROOT = Path(__file__).parents[2]
SNAPSHOTS = ROOT / "tests" / "data" / "tables"
WIDTHS = (60, 80, 120, 200)
FOLDER = "services/ranking/src/ranking_models/deep_networks/attention_with_rotary_embeddings"
PLACES = [f"{FOLDER}/layers.py", f"{FOLDER}_strided/layers.py"]
TARGETS = [Target(place, "Model", 7, "a" * 64, "decorator") for place in PLACES]
LONG = Target(f"{FOLDER}/norms.py", "RootMeanSquareNormWithResidualAndGate", 7, "b" * 64, "decorator")
WRONG = (
    "output 0 (float32 [4, 100]) is wrong at [0, 0]: expected 0, got nan; relative error inf, allowed 0 by places of "
    "NaN and infinities, at default, rows=4, seed 5470174, ×10000 inputs"
)


def outcomes():
    fast = verdict("accepted", "", "", GPU, (timing(speed=1.83, compiled=1.12),), "timing")
    wrong = verdict("rejected", WRONG, "values")
    return [
        Outcome(TARGETS[0], CandidateId("inductor"), None, fast),
        Outcome(TARGETS[1], CandidateId("inductor"), None, wrong),
        Outcome(LONG, ADOPTED, None, fast),
    ]


def summary(width):
    return render_table(outcomes(), {TARGETS[0].id: "x.patch"}, width, False)


def bench(width):
    right = Sample(0, "correct", speedup=1.3, kernel_hash="0" * 64)
    made = benchmark({each.id: [right, right] for each in (*TARGETS, LONG)})
    scores = [replace(score, target=each) for score, each in zip(made.targets, (*TARGETS, LONG), strict=True)]
    return render_benchmark(replace(made, targets=tuple(scores)), width, False)


def ranking(width):
    paths = ("model.decoder.layers.*.self_attention.output_normalization", "model.final_normalization")
    figures = {"calls": 64, "operations": 9, "ms": 1.5, "own_ms": 1.5, "share": 0.4, "headroom_ms": 1.2}
    figures |= {"own_headroom_ms": 1.2, "roofline": 0.2, "bytes": 1, "fused_bytes": 1, "flops": 0}
    rows = (
        RankedModule(cls="a.RootMeanSquareNorm", paths=paths, **figures),
        RankedModule(
            cls="a.Gate", paths=paths[:1], **figures, kernel="0123456789ab", gain=Ratio(1.4, 1.3, 1.5)
        ),
    )
    found = Ranking(rows, measured=True, gpu="NVIDIA H200", ms=3.0, headroom_ms=2.4, model="LlamaForCausalLM")
    return render_ranking(found, width, False).partition("\n\n")[0]


def optimize(width):
    gain = Ratio(1.42, 1.38, 1.47)
    modules = [
        ModuleReport(
            f"model.decoder.layers.{n}.self_attention.norm", "RootMeanSquareNorm", "0123456789ab", gain=gain
        )
        for n in range(3)
    ]
    modules.append(ModuleReport("model.decoder.embedding", "VeryLongNameOfAnEmbedding", reason=WRONG))
    modules.append(ModuleReport("model.head", "Linear", reason=UNKNOWN))
    return OptimizeReport(tuple(modules), Path(".kernelllm")).shown(width).partition("\n\n")[0]


def store(width):
    records = [
        KernelRecord(
            each.target.id, "a" * 64, Candidate(each.target.id, "", "files"), each.verdict, "2026-11-01"
        )
        for each in outcomes()
    ]
    return listed(records, width)


TABLES = (summary, bench, ranking, optimize, store)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_tables_fit_and_keep_a_line_a_row(table, width):
    shown = table(width)
    lines = [line for line in shown.splitlines() if line.strip()]
    if table not in (optimize, bench):  # which have sentences below
        assert max(map(len, lines)) <= width
    file = SNAPSHOTS / f"{table.__name__}_{width}.txt"
    if os.environ.get("UPDATE_TABLES"):
        file.write_text(shown + "\n")
    assert shown + "\n" == file.read_text()


@pytest.mark.parametrize(
    ("text", "most", "wanted"),
    [
        ("short", 10, "short"),
        ("One whole sentence. And a second one that is long.", 30, "One whole sentence"),
        ("words that never come to an end in so few", 20, "words that never…"),
        ("a\nmessage  in\nlines", 40, "a message in lines"),
        ("unbreakable" * 9, 12, "unbreakable…"),
    ],
)
def test_what_others_wrote_ends_with_a_sentence_or_with_a_word(text, most, wanted):
    assert whole(text, most) == wanted


def test_paths_lose_their_left():
    assert path("Model a/b/c/layers.py", 18) == "Model …/layers.py"
    assert path("a/b/c/d/layers.py", 14) == "…/d/layers.py"
    assert path("Model a/layers.py", 40) == "Model a/layers.py"
    assert path("RootMeanSquareNorm a/layers.py", 20) == "RootMeanSquareNorm"


def test_only_one_place_shortens_what_others_wrote():
    """A message cut by an index ends in the middle of a word."""
    cut = re.compile(r"""(split\(\)\)|error\)|message|plain|log\S*)\)?\[:\s*\d{2,}\]|\d\] \+ "…\"""")
    places = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for package in ("kernelllm_runtime", "kernelllm_judge", "pytest_kernelllm", "hooks")
        for file in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if cut.search(line)
    ]
    assert places == []
