"""Ten level-1 candidates through KernelBench's own evaluation and through this judge, alternately: seconds each.

    python benchmarks/beside_kernelbench.py --kernelbench CHECKOUT [--problems FOLDER] [--out FOLDER] [NUMBER ...]

``CHECKOUT`` as in ``kernelbench_eval.py``; the problems lie in it or in ``--problems``, and have their own sizes. KernelBench makes
five correctness trials and a hundred of each timing, as its scripts do, in a fresh process each time, whose start does not count.
This judge has one process, warm, which judges each candidate twice: for a new target, and once more with a line added. Its seconds
are from sending the request to the verdict. Needs a GPU. What ``--out`` holds already is not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from kernelbench_eval import evaluate, is_checkout
from own_sizes import CANDIDATES

from kernelllm_judge.core.records import Verdict
from kernelllm_judge.environment import find_environment
from pytest_kernelllm.beside.verify.pairs import Pair, pair_job
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.pool.engine import open_engine
from pytest_kernelllm.pool.jobs import Engine

SMALL = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 1024)]


def get_init_inputs():
    return []
"""


class Judging:
    """One warm judging process."""

    def __init__(self, engine: Engine, settings: Settings, folder: Path) -> None:
        """``folder`` takes the candidates' files."""
        self._engine = engine
        self._settings = settings
        self._folder = folder

    def judge(self, reference: Path, text: str) -> dict[str, Any]:
        """Returns the verdict on a candidate, with the seconds that it took."""
        candidate = self._folder / "candidate.py"
        candidate.write_text(text, encoding="utf-8")
        job = pair_job(Pair(reference.stem, str(reference), candidate), self._settings, 0.0)
        if isinstance(job, str):
            raise SystemExit(job)
        start = time.perf_counter()
        reply = self._engine.submit(job).result()
        seconds = time.perf_counter() - start
        verdict = Verdict.from_json(reply["verdict"])
        timing = verdict.timing[0] if verdict.timing else None
        return {
            "verdict": verdict.verdict,
            "reason": verdict.reason,
            "seconds": seconds,
            "durations": verdict.durations,
            "kernel_ms": timing.kernel.p50 / 1000 if timing else None,
            "eager_ms": timing.eager.p50 / 1000 if timing else None,
        }


def report(found: dict[str, dict[str, Any]]) -> str:
    """Returns Markdown: a row for each candidate, and the medians."""
    lines = [
        "| problem | KernelBench s | this judge s | once more s | times faster | KernelBench | this judge |",
        "|---|---:|---:|---:|---:|---|---|",
    ]
    done = []
    for name, row in found.items():
        theirs, ours, more = row["kernelbench"], row["judge"], row["once more"]
        passed = "passed" if theirs["passed"] else f"failed: {theirs['reported'][:80]}"
        said = ours["verdict"] + (f": {ours['reason'][:80]}" if ours["reason"] else "")
        if theirs["seconds"] is None:
            lines.append(
                f"| {name} | – | {ours['seconds']:.1f} | {more['seconds']:.1f} | – | {passed} | {said} |"
            )
            continue
        ratio = theirs["seconds"] / ours["seconds"]
        done.append((theirs["seconds"], ours["seconds"], more["seconds"], ratio))
        lines.append(
            f"| {name} | {theirs['seconds']:.1f} | {ours['seconds']:.1f} | {more['seconds']:.1f} | {ratio:.1f} | {passed} | {said} |"
        )
    if done:
        middle = [f"{median(column):.1f}" for column in zip(*done, strict=True)]
        lines.append(f"| median of {len(done)} | {' | '.join(middle)} | | |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Prints a row for each candidate and the medians; 1 if one is not accepted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "numbers", nargs="*", metavar="NUMBER", help="problems; by default all there are candidates for"
    )
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument(
        "--problems", type=Path, metavar="FOLDER", help="holds level1 (default: CHECKOUT/KernelBench)"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="keeps beside.json, and gets beside.md")
    parser.add_argument(
        "--limit", type=float, default=240.0, help="seconds for one evaluation by KernelBench"
    )
    parser.add_argument("--seconds", type=float, default=540.0, help="begin no other candidate after these")
    options = parser.parse_args()
    begun = time.monotonic()
    if not is_checkout(options.kernelbench):
        parser.error(
            f"{options.kernelbench} is no checkout of KernelBench: it has no src/kernelbench/eval.py"
        )
    environment = find_environment("auto")
    if environment.device != "cuda":
        parser.error("this comparison needs a CUDA GPU")
    found: dict[str, dict[str, Any]] = {}
    kept = options.out / "beside.json" if options.out else None
    if kept and kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
    settings = Settings(device="cuda", workers=1, deadline=120.0)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = stack.enter_context(open_engine(settings, environment, 1))
        judging = Judging(engine, settings, folder)
        (folder / "small.py").write_text(SMALL, encoding="utf-8")
        warm = judging.judge(folder / "small.py", CANDIDATES["19"])
        print(f"{environment.gpu}; warm after {warm['seconds']:.1f} s ({warm['verdict']})", flush=True)
        for number in options.numbers or CANDIDATES:
            level = (options.problems or options.kernelbench / "KernelBench") / "level1"
            [file] = level.resolve().glob(f"{number}_*.py")
            if file.stem in found or time.monotonic() - begun > options.seconds:
                continue
            text = CANDIDATES[number]
            judged = judging.judge(file, text)
            theirs = evaluate(
                options.kernelbench.resolve(), file.read_text(encoding="utf-8"), text, options.limit
            )
            again = judging.judge(file, f"{text}\n# once more\n")
            found[file.stem] = {"kernelbench": theirs, "judge": judged, "once more": again}
            print(report({file.stem: found[file.stem]}).splitlines()[2], flush=True)
            if kept:
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(json.dumps(found, indent=1), encoding="utf-8")
    print(report(found))
    if kept:
        kept.with_suffix(".md").write_text(report(found), encoding="utf-8")
    return 0 if all(row["judge"]["verdict"] == "accepted" for row in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
