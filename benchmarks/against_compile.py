"""KernelBench at its own sizes: eager, ``torch.compile``, ``torch.compile`` with its search, and this project's kernels.

    python benchmarks/against_compile.py --kernelbench CHECKOUT --out results.jsonl [1 2/17 level2 ...] [--limit 540]
    python benchmarks/against_compile.py --out results.jsonl --table
    python benchmarks/against_compile.py --kernelbench CHECKOUT --out five.jsonl --artifacts FOLDER --dtypes float32 bfloat16

Every problem is written, judged and timed on one GPU, several problems at once on several GPUs. Each result is appended to
``--out`` as a line of JSON as soon as it is there; problems that have a line are left out, so a run that ended goes on.

Times of eager, ``torch.compile`` and the kernel are the verdict's: one process, in turns, cold L2, the judge's clock. The search of
``torch.compile`` (max-autotune, coordinate descent) is timed beside ``torch.compile``'s default in another process; its column
is their ratio times the verdict's ``torch.compile``. Where there is no verdict, that process gives all times.

``--artifacts`` names a checkout of kaiming-cheng/kernelagent-optimization-artifacts; its kernels are judged in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from compile_table import in_words, table

from pytest_kernelllm.core.records import Completion, Verdict
from pytest_kernelllm.generate.protocol import Generator, Request

MARKED = """

from pytest_kernelllm import triton_candidate

triton_candidate(Model, inputs=lambda: tuple(get_inputs()), init=lambda: tuple(get_init_inputs()), dtypes=("{dtype}",))
"""

CALLS = {
    4: "def forward(self, A, B):\n    return kernel_function(A, B)\n",
    36: "def forward(self, x):\n    return kernel_function(x, self.eps)\n",
    43: "def forward(self, x):\n    pool = self.maxpool\n"
    "    return kernel_function(x, pool.kernel_size, pool.stride, pool.padding, pool.dilation)\n",
    77: "def forward(self, x):\n    conv = self.conv_transpose3d\n"
    "    return kernel_function(x, conv.weight, conv.bias, conv.stride, conv.padding, conv.dilation)\n",
    82: "def forward(self, x):\n    conv = self.conv2d\n"
    "    return kernel_function(x, conv.weight, conv.bias, conv.stride, conv.padding)\n",
}
"""How the artifact for a problem of level 1 is called with what the module has."""

TUNED = {"max_autotune": True, "coordinate_descent_tuning": True}


def main() -> int:
    """Measures what is missing, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="1, level2, 2/17; by default 1 and 2")
    parser.add_argument("--kernelbench", type=Path, metavar="CHECKOUT")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--artifacts", type=Path, metavar="FOLDER")
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="further settings")
    parser.add_argument("--gpus", type=int, help="by default all")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="begin none later")
    parser.add_argument("--table", action="store_true", help="print the table of what is there, no more")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=2, metavar=("FILE", "DTYPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(Path(options.measure[0]), options.measure[1])))
        return 0
    if options.worker:
        return work(options)
    if options.out is None or not (options.table or options.kernelbench):
        parser.error("name --out and --kernelbench (or --table)")
    if not options.table:
        run(options, list(missing(options)))
    print(table(read(options.out)))
    return 0


# --------------------------------------------------------------------------- which, and where


def missing(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    """Yields the jobs that have no result yet."""
    done = {(each["problem"], each["dtype"]) for each in read(options.out)}
    named = options.problems or (["1"] if options.artifacts else ["1", "2"])
    for name in named:
        level, _, number = name.removeprefix("level").partition("/")
        files = options.kernelbench.rglob(f"level{level}/{number or '[0-9]*'}_*.py")
        for file in sorted(files, key=_number):
            if options.artifacts and artifact(options.artifacts, _number(file)) is None:
                continue
            for dtype in options.dtypes:
                if (f"{level}/{file.stem}", dtype) not in done:
                    yield {"problem": f"{level}/{file.stem}", "file": str(file.resolve()), "dtype": dtype}


def read(path: Path) -> list[dict[str, Any]]:
    """Returns the results that a file holds."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def artifact(folder: Path, number: int) -> str | None:
    """Returns the artifact for a problem of level 1 as a kernel module; None if there is none."""
    files = [f for f in folder.glob("*/optimized_kernel_beam_search.py") if _number(f.parent) == number]
    return f"{files[0].read_text()}\n\n\n{CALLS[number]}" if files and number in CALLS else None


def _number(path: Path) -> int:
    return int(path.name.partition("_")[0])


def run(options: argparse.Namespace, jobs: Sequence[dict[str, str]]) -> None:
    """Shares the jobs among the GPUs."""
    import torch

    waiting: queue.SimpleQueue[dict[str, str]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    end, writing = time.monotonic() + options.limit, threading.Lock()
    threads = [
        threading.Thread(target=serve, args=(gpu, waiting, end, options.out, writing))
        for gpu in range(options.gpus or torch.cuda.device_count())
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def serve(gpu: int, waiting: queue.SimpleQueue[Any], end: float, out: Path, writing: threading.Lock) -> None:
    """Gives jobs to a process that sees one GPU; one that dies is replaced."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    device = visible[gpu] if gpu < len(visible) and visible[gpu] else str(gpu)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device}
    command = [sys.executable, __file__, "--worker", *sys.argv[1:]]
    process = None
    while time.monotonic() < end:
        try:
            job = waiting.get_nowait()
        except queue.Empty:
            break
        if process is None or process.poll() is not None:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        result = json.loads(answer) if answer else {**job, "error": "the process that measured it ended"}
        with writing, out.open("a", encoding="utf-8") as file:
            print(json.dumps(result), file=file, flush=True)
        print(f"{job['problem']} {job['dtype']}: {in_words(result)}", file=sys.stderr, flush=True)
    if process is not None and process.stdin:
        process.stdin.close()
        process.wait()


# --------------------------------------------------------------------------- on one GPU


class Artifacts(Generator):
    """Gives each target the artifact for its problem."""

    name = "artifact"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def identity(self) -> str:
        """Returns a constant: the folder is the same for a whole run."""
        return "artifacts"

    def generate(self, requests: Sequence[Request]) -> Iterator[tuple[Request, Completion]]:
        """Yields the artifact of each target as its first candidate."""
        for request in requests:
            text = artifact(self._folder, _number(Path(request.target.path))) or ""
            if 0 in request.indices:
                yield request, Completion(self.name, 0, text, "kernel_module")


def work(options: argparse.Namespace) -> int:
    """Reads jobs from standard input, and answers each with a line."""
    from pytest_kernelllm.config.settings import load_settings
    from pytest_kernelllm.session.session import open_session

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    more = [Artifacts(options.artifacts)] if options.artifacts else []
    given = dict(pair.split("=", 1) for pair in options.set)
    chosen = {
        "generator": "inductor",
        "samples": options.samples,
        "min_speedup": 0.0,
        "deadline": 240,
        **given,
    }
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        settings = load_settings(project, chosen)
        with open_session(project, settings, generators=more) as session:
            for line in sys.stdin:
                job = json.loads(line)
                try:
                    result = {**job, **judged(session, project, job), "beside": beside(project, job)}
                except Exception as error:
                    result = {**job, "error": f"{type(error).__name__}: {error}"}
                print(json.dumps(result), file=answers, flush=True)
    return 0


def judged(session: Any, project: Path, job: dict[str, str]) -> dict[str, Any]:
    """Returns every candidate's verdict in short, and the seconds that writing and judging took."""
    from pytest_kernelllm.discover.scan import scan_file

    level, _, name = job["problem"].partition("/")
    file = project / f"level{level}_{job['dtype']}" / f"{name}.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(Path(job["file"]).read_text() + MARKED.format(dtype=job["dtype"]))
    [target] = scan_file(file, project).targets
    start = time.monotonic()
    for candidate in session.candidate_ids:
        session.expect(target, candidate)
    outcomes = [session.outcome(target, candidate) for candidate in session.candidate_ids]
    took = time.monotonic() - start
    return {"seconds": round(took, 1), "candidates": [_short(outcome) for outcome in outcomes]}


def _short(outcome: Any) -> dict[str, Any]:
    verdict: Verdict | None = outcome.verdict
    short = {"id": str(outcome.id), "reason": outcome.why, "note": getattr(outcome.candidate, "note", "")}
    if verdict is not None:
        short |= {"verdict": verdict.verdict, "correct": verdict.correct, "rule": verdict.rule}
        short |= {"timing": verdict.timing[0].to_json() if verdict.timing else None}
    return short


def beside(project: Path, job: dict[str, str]) -> dict[str, Any]:
    """Measures eager and both kinds of ``torch.compile`` in a process of their own."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(project / "cache")}
    command = [sys.executable, __file__, "--measure", job["file"], job["dtype"]]
    try:
        done = subprocess.run(
            command, env=os.environ | cache, capture_output=True, text=True, timeout=400, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": "took longer than 400 s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"error": (done.stderr.strip().splitlines() or ["no reason"])[-1]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def measure(file: Path, dtype: str) -> dict[str, Any]:
    """Returns the median µs of a problem's eager call and of both kinds of ``torch.compile``, with cold L2."""
    import torch
    from triton.testing import do_bench

    names: dict[str, Any] = {"__name__": "problem"}
    exec(compile(file.read_text(), str(file), "exec"), names)
    kind = getattr(torch, dtype)
    with torch.device("cuda"), torch.no_grad():
        torch.manual_seed(0)
        module = names["Model"](*names["get_init_inputs"]()).to(kind).eval()
        inputs = [
            x.to(kind) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for x in names["get_inputs"]()
        ]
        found: dict[str, Any] = {}
        for name, given in (("eager", None), ("compile", {}), ("tuned", TUNED)):
            call, start = module if given is None else torch.compile(module, options=given), time.monotonic()
            call(*inputs)
            torch.cuda.synchronize()
            found[f"{name}_seconds"] = round(time.monotonic() - start, 1)
            found[name] = 1e3 * float(do_bench(lambda call=call: call(*inputs), return_mode="median"))
            torch.compiler.reset()
    return found


if __name__ == "__main__":
    raise SystemExit(main())
