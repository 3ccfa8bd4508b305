"""What ``kernelllm verify --pairs`` makes of a run in which processes die, the disk is full, or the GPU is.

    python benchmarks/faults.py [--pairs 200] [--faults calm,processes,disk,gpu] [--seed 0] [--out FOLDER]

The pairs are entries of the corpus, right and wrong ones, each several times with another last line. For every fault all of
them are judged once, while at random moments

* ``processes``: SIGKILL or SIGSEGV hits a judging process, a candidate's worker, or a fork server between them;
* ``disk``: the file system with the temporary files, the caches and the written lines has no room left for some seconds. It is
  a small tmpfs; where none can be mounted, no file may grow beyond 64 KiB (``RLIMIT_FSIZE``) during the whole run;
* ``gpu``: another process takes all free memory of the GPU for some seconds. Left out without a GPU.

Prints a table; exit code 1 if a wrong pair was accepted, a right one rejected, or a pair has no answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from harm import (
    FILE_LIMIT,
    Fault,
    Run,
    calm,
    fill_disk,
    fill_gpu,
    kill_processes,
    limit_files,
    limit_to,
    small_disk,
)

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.corpus.corpus import compose, subject  # noqa: E402
from tests.corpus.entries import as_problem, load  # noqa: E402

SMALL = (
    "layer_norm_gelu",
    "leaky_relu",
    "masked_fill",
    "rectified",
    "rms_norm",
    "row_scale",
    "scale_shift",
    "softmax",
)
"""Subjects whose candidates are judged quickly."""

LEFT_OUT = frozenset(("run", "compile", "supports"))
"""Rules whose cheats hang, take all memory, or crash by themselves, or claim a domain, which a pair has not."""


@dataclass(frozen=True)
class Result:
    """One run over all pairs."""

    fault: str
    how: str
    """What was done to it, in words."""
    pairs: int
    seconds: float
    exit_code: int
    answered: int
    decided: int
    inconclusive: dict[str, int]
    """Reasons, with the number of pairs."""
    wrong_believed: list[str]
    """Pairs whose decision is not the right one."""
    lost: list[str]
    """Pairs without an answer."""
    errors: str
    """The end of what the command printed on standard error."""

    def to_row(self) -> str:
        """Returns a row of Markdown."""
        reasons = "; ".join(f"{n} × {reason}" for reason, n in self.inconclusive.items()) or "–"
        counts = [self.pairs, self.answered, self.decided, sum(self.inconclusive.values())]
        counts += [len(self.wrong_believed), len(self.lost), round(self.seconds)]
        return f"| {self.fault} | {self.how} | {' | '.join(map(str, counts))} | {reasons} |"


def write_pairs(folder: Path, count: int) -> dict[str, str]:
    """Writes pairs; returns the right decision of each by its name."""
    entries = [
        entry
        for entry in load()
        if entry.subject in SMALL
        and entry.runs_on("cpu")
        and entry.runs_on("cuda")
        and entry.kind != "fenced"
        and not (entry.refused_statically or LEFT_OUT & set(entry.rules))
    ]
    lives = {name: subject(name, "cpu") for name in SMALL}
    honest = [entry for entry in entries if entry.kind == "honest"]
    cheats = [entry for entry in entries if entry.kind == "cheat"]
    expected = {}
    for number in range(count):
        kind = honest if number % 2 else cheats
        entry = kind[number // 2 % len(kind)]
        name = f"{number:03}_{entry.name}"
        pair = folder / name
        pair.mkdir(parents=True)
        # Its small sizes are the marker's; KernelBench's form gives the large ones.
        reference = as_problem(entry.subject)
        (pair / "reference.py").write_text(reference.replace("get_inputs", "large_inputs"), encoding="utf-8")
        source = compose(entry, lives[entry.subject], on_gpu=False).source
        (pair / "candidate.py").write_text(f"{source}\n# {number}\n", encoding="utf-8")
        expected[name] = "accepted" if kind is honest else "rejected"
    return expected


def run_fault(fault: str, folder: Path, expected: dict[str, str], options: argparse.Namespace) -> Result:
    """Judges all pairs while a fault is at work."""
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-m", "pytest_kernelllm.cli", "verify", "--pairs", str(folder), "--json"]
        environment = {**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONPATH": _path()}
        lines, limit = None, None
        harm: Fault | None = {"calm": calm, "processes": kill_processes, "gpu": fill_gpu}.get(fault)
        if fault == "disk":
            disk = stack.enter_context(small_disk())
            place = disk or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
                environment[name] = str(place)
            lines = place / "lines.jsonl"
            harm = fill_disk(disk) if disk else limit_files
            limit = None if disk else FILE_LIMIT
        assert harm is not None
        command += [str(lines or "-"), *(["--workers", str(options.workers)] if options.workers else [])]
        command += ["--device", options.device, *([] if options.timing else ["--no-timing"])]
        errors = stack.enter_context(tempfile.TemporaryFile("w+"))
        start = time.monotonic()
        process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=None if limit is None else lambda: limit_to(limit),
        )
        run = Run(process, lines=lines)
        reading = threading.Thread(target=run.read, daemon=True)
        reading.start()
        guard = threading.Timer(options.limit, process.kill)
        guard.start()
        try:
            how = harm(run, random.Random(options.seed), len(expected))
            process.wait()
        finally:
            guard.cancel()
            process.kill()
        reading.join()
        run.read_file()
        seconds = time.monotonic() - start
        errors.seek(0)
        printed = errors.read()[-3000:]
    verdicts = {name: str(found["verdict"]) for name, found in run.answers.items()}
    undecided = [name for name, verdict in verdicts.items() if verdict == "inconclusive"]
    return Result(
        fault=fault,
        how=how,
        pairs=len(expected),
        seconds=round(seconds, 1),
        exit_code=process.returncode,
        answered=len(verdicts),
        decided=len(verdicts) - len(undecided),
        inconclusive=dict(Counter(str(run.answers[name]["reason"])[:160] for name in undecided)),
        wrong_believed=[
            f"{name}: {verdict}: {run.answers[name]['reason']}"
            for name, verdict in sorted(verdicts.items())
            if verdict not in ("inconclusive", expected[name])
        ],
        lost=sorted(set(expected) - set(verdicts)),
        errors=printed,
    )


def _path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--faults", default="processes,disk,gpu", help="also: calm")
    parser.add_argument("--seed", type=int, default=0, help="of the moments and the victims")
    parser.add_argument("--workers", type=int, help="judging processes (default: kernelllm's own)")
    parser.add_argument("--timing", action="store_true", help="also time on a GPU")
    parser.add_argument("--limit", type=float, default=540.0, help="seconds after which a run is killed")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write faults.json and faults.md")
    options = parser.parse_args()
    import torch

    options.device = "cuda" if torch.cuda.is_available() else "cpu"
    faults = [fault for fault in options.faults.split(",") if fault != "gpu" or options.device == "cuda"]
    if unknown := set(faults) - {"calm", "processes", "disk", "gpu"}:
        parser.error(f"--faults takes calm, processes, disk and gpu, not {', '.join(sorted(unknown))}")
    results: list[Result] = []
    lines = [
        f"{options.pairs} pairs, {options.device}, {len(os.sched_getaffinity(0))} cores, seed {options.seed}",
        "",
        "| fault | what was done | pairs | answered | decided | inconclusive | wrong believed | lost | seconds | reasons |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        expected = write_pairs(Path(name), options.pairs)
        for fault in faults:
            result = run_fault(fault, Path(name), expected, options)
            results.append(result)
            lines.append(result.to_row())
            print(lines[-1], flush=True)
            for sentence in (*result.wrong_believed, *(f"lost: {pair}" for pair in result.lost[:5])):
                print(f"    {sentence}")
            if result.exit_code not in (0, 1, 2):
                print(f"    exit code {result.exit_code}: {result.errors[-600:]}")
            if options.out:
                options.out.mkdir(parents=True, exist_ok=True)
                text = json.dumps([asdict(each) for each in results], indent=1)
                (options.out / "faults.json").write_text(text + "\n", encoding="utf-8")
                (options.out / "faults.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 1 if any(result.wrong_believed or result.lost for result in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
