"""Candidates of the corpus through KernelBench's own evaluation and through this judge: what passes, and how long it takes.

KernelBench makes five correctness trials and a hundred timings, each evaluation in a process of its own whose start does not
count; this judge is warm. Candidates that touch files, processes or the network are left out, because nothing holds them back
there. ``CHECKOUT`` needs ``src/kernelbench``; packages that it needs and that are not installed may lie in ``CHECKOUT/deps``. Needs a GPU.

    python -m benchmarks harness --kernelbench CHECKOUT [--only 'softmax__*'] [--limit 280]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.checkout import import_from
from benchmarks.rows import ROOT, Row, less, more

SUBJECTS = ROOT / "tests" / "corpus" / "subjects"

HARMFUL = re.compile(
    r"^\s*(?:import|from)\s+(?:{0})\b|[\"'](?:{0})[\"']|\bopen\(|torch\.(?:save|load|from_file)\b|load_inline".format(
        "asyncio|ctypes|gc|http|mmap|multiprocessing|os|pathlib|pty|resource|shutil|signal|socket|subprocess|sys|tempfile|urllib"
    ),
    re.MULTILINE,
)
"""Text in a candidate that may leave its process; such candidates are left out."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--only", default="*", metavar="GLOB", help="candidates by name")
    parser.add_argument(
        "--limit", type=float, default=240.0, metavar="SECONDS", help="begin no other evaluation"
    )
    parser.add_argument("--each", type=float, default=90.0, metavar="SECONDS", help="for one evaluation")


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields how many honest and cheating candidates each lets through, and the seconds of each."""
    from tests.corpus.corpus import CorpusJudge
    from tests.corpus.entries import load

    checkout = options.kernelbench.resolve()
    if not (checkout / "src" / "kernelbench" / "eval.py").is_file():
        raise SystemExit(f"{checkout} is no checkout of KernelBench: it has no src/kernelbench/eval.py.")
    entries = [e for e in load(options.only) if e.runs_on("cuda") and not HARMFUL.search(e.text)]
    random.Random(0).shuffle(entries)
    end = time.monotonic() + options.limit
    theirs: dict[str, dict[str, Any]] = {}
    for entry in entries:
        if time.monotonic() < end:
            theirs[entry.name] = _evaluate(checkout, entry.subject, entry.text, options.each)
            print(f"  {entry.name}: {'passes' if theirs[entry.name]['passed'] else 'is refused'}", flush=True)
    seen = [entry for entry in entries if entry.name in theirs]
    ours = {outcome.entry.name: outcome for outcome in CorpusJudge("cuda", 8).judge(seen)}
    both = [entry for entry in seen if entry.name in ours]
    for kind, better in (("honest", more), ("cheat", less)):
        named = [e.name for e in both if e.kind == kind]
        if not named:
            continue
        passed = (
            sum(theirs[name]["passed"] for name in named),
            sum(ours[name].status == "accepted" for name in named),
        )
        if all(passed):
            yield better(f"{kind} candidates that pass, of {len(named)}", "KernelBench", *passed, "")
        else:
            yield Row(f"{kind} candidates that pass, of {len(named)}", "KernelBench", *passed, unit="")
    timed = [e.name for e in both if e.kind == "honest" and theirs[e.name]["seconds"]]
    if timed:
        seconds = [
            statistics.median(theirs[name]["seconds"] for name in timed),
            statistics.median(ours[name].seconds for name in timed),
        ]
        yield less(f"seconds of an honest candidate (median of {len(timed)})", "KernelBench", *seconds, "s")


def _evaluate(checkout: Path, subject: str, source: str, limit: float) -> dict[str, Any]:
    """Returns what ``eval_kernel_against_ref`` says of a kernel module, from a process of its own with a time limit."""
    candidate = f"{source}\n\nfrom {subject} import Model as _Target\n\n\nclass ModelNew(_Target):\n    forward = forward\n"
    found: dict[str, Any] = {"passed": False, "seconds": None}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        request = {
            "kernelbench": str(checkout),
            "reference": (SUBJECTS / f"{subject}.py").read_text(encoding="utf-8"),
            "candidate": candidate,
            "answer": str(answer),
        }
        process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": f"{ROOT}{os.pathsep}{SUBJECTS}",
                "TMPDIR": folder,
                "HOME": folder,
            },
        )
        try:
            process.communicate(json.dumps(request).encode(), timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return found | (json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else {})


def _evaluate_here(request: dict[str, Any]) -> None:
    """The evaluating process: one call of ``eval_kernel_against_ref``."""
    checkout = Path(request["kernelbench"])
    import_from(checkout)
    import torch
    from kernelbench.eval import eval_kernel_against_ref

    torch.cuda.init()
    begun = time.perf_counter()
    result = eval_kernel_against_ref(
        request["reference"],
        request["candidate"],
        num_correct_trials=5,
        num_perf_trials=100,
        measure_performance=True,
        timing_method="cuda_event",
        backend="triton",
        device=torch.device("cuda:0"),
        precision=torch.float32,
    )
    passed = bool(result and result.compiled and result.correctness)
    answer = {"passed": passed, "seconds": time.perf_counter() - begun}
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    _evaluate_here(json.loads(sys.stdin.read()))
