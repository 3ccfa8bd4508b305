"""KernelBench at its own sizes: eager, ``torch.compile``, ``torch.compile`` with its search, and this project's kernels.

    python benchmarks/against_compile.py --kernelbench CHECKOUT --out results.jsonl [1 2/17 level2 ...] [--limit 540]
    python benchmarks/against_compile.py --kernelbench CHECKOUT --out results.jsonl --tuned [...] [--limit 540]
    python benchmarks/against_compile.py --out results.jsonl [--bench passk.json] --table
    python benchmarks/against_compile.py --kernelbench CHECKOUT --out five.jsonl --artifacts FOLDER --dtypes float32 bfloat16

Problems are written, judged and timed side by side, as in ``kernelllm bench``. Each result is appended to ``--out`` as a line of
JSON as soon as it is there; problems that have a line are left out, so a run that ended goes on. ``--bench`` adds what
``kernelllm bench --kernelbench --json`` found about problems that have none.

Times of eager, ``torch.compile`` and the kernel are the verdict's: one process, in turns, cold L2, the judge's clock. With
``--tuned`` nothing is judged: the search of ``torch.compile`` (max-autotune, coordinate descent) is timed beside its default,
``--jobs`` problems side by side; each timing, also those that the search makes, has the GPU alone. The table's column is their
ratio times the verdict's ``torch.compile``; where there is no verdict, that run gives all times.

``--artifacts`` names a checkout of kaiming-cheng/kernelagent-optimization-artifacts; its kernels are judged in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from compile_table import in_words, table

from kernelllm_judge.core.records import Completion, Target, Verdict
from kernelllm_judge.environment import find_gpus
from kernelllm_judge.gpu_lock import hold_gpu
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

Job = dict[str, str]
"""``problem``, such as 1/23_Softmax, its ``file``, and the ``dtype``."""

Result = dict[str, Any]

TUNED: dict[str, Any] = {"max_autotune": True, "coordinate_descent_tuning": True}


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
    parser.add_argument(
        "--samples", type=int, default=1, help="with a search, the first is the fastest found"
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="further settings")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="begin none later")
    parser.add_argument(
        "--tuned", action="store_true", help="time torch.compile with its own search, judge nothing"
    )
    parser.add_argument(
        "--jobs", type=int, default=3, help="with --tuned: problems that are compiled at once"
    )
    parser.add_argument("--bench", type=Path, metavar="FILE", help="results of kernelllm bench --json")
    parser.add_argument("--table", action="store_true", help="print the table of what is there, no more")
    parser.add_argument("--measure", nargs=2, metavar=("FILE", "DTYPE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(Path(options.measure[0]), options.measure[1])))
        return 0
    if options.out is None or not (options.table or options.kernelbench):
        parser.error("name --out and --kernelbench (or --table)")
    if not options.table:
        work = tuned if options.tuned else judged
        for result in work(options, list(missing(options))):
            with options.out.open("a", encoding="utf-8") as file:
                print(json.dumps(result), file=file)
            print(f"{result['problem']} {result['dtype']}: {in_words(result)}", file=sys.stderr, flush=True)
    print(table([*results(options).values()]))
    return 0


# --------------------------------------------------------------------------- which


def missing(options: argparse.Namespace) -> Iterator[Job]:
    """Yields the jobs that have no result yet."""
    known = results(options)
    named = options.problems or (["1"] if options.artifacts else ["1", "2"])
    for problem, file in problems(options.kernelbench, named):
        if options.artifacts and artifact(options.artifacts, _number(file)) is None:
            continue
        for dtype in options.dtypes:
            there = known.get((problem, dtype), {})
            if ("beside" if options.tuned else "candidates") not in there:
                yield {"problem": problem, "file": str(file), "dtype": dtype}


def problems(checkout: Path, named: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yields names, such as 1/23_Softmax, and files of problems that are named by level, or by level and number."""
    for name in named:
        level, _, number = name.removeprefix("level").partition("/")
        files = checkout.resolve().rglob(f"level{level}/{number or '[0-9]*'}_*.py")
        for file in sorted(files, key=_number):
            yield f"{level}/{file.stem}", file


def results(options: argparse.Namespace) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns what is known about each problem and dtype, from all lines about it together."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    benched = from_bench(json.loads(options.bench.read_text())) if options.bench else []
    for each in [*benched, *map(json.loads, lines)]:
        found.setdefault((each["problem"], each["dtype"]), {}).update(each)
    return found


def from_bench(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the results that a report of ``kernelllm bench --kernelbench`` holds."""
    for scored in report["targets"]:
        problem = scored["problem"]
        candidates = [
            {
                "id": f"{report['generator']}-{sample['index']}",
                "reason": sample["reason"],
                "note": "",
                "correct": sample["result"] == "correct",
                "timing": sample if sample["kernel"] else None,
            }
            for sample in scored["samples"]
        ]
        name = f"{problem['level']}/{Path(problem['name']).stem}"
        took = sum(sample["seconds"] for sample in scored["samples"])
        yield {"problem": name, "dtype": "float32", "seconds": round(took, 1), "candidates": candidates}


def artifact(folder: Path, number: int) -> str | None:
    """Returns the artifact for a problem of level 1 as a kernel module; None if there is none."""
    files = [f for f in folder.glob("*/optimized_kernel_beam_search.py") if _number(f.parent) == number]
    return f"{files[0].read_text()}\n\n\n{CALLS[number]}" if files and number in CALLS else None


def _number(path: Path) -> int:
    return int(path.name.partition("_")[0])


# --------------------------------------------------------------------------- judged and timed


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


def judged(options: argparse.Namespace, jobs: Sequence[Job]) -> Iterator[Result]:
    """Yields the verdicts of each job's candidates in short, and the seconds that writing and judging took."""
    from kernelllm_judge.core.errors import SessionError
    from pytest_kernelllm.beside.passk.side_by_side import side_by_side
    from pytest_kernelllm.config.settings import load_settings
    from pytest_kernelllm.discover.scan import scan_file
    from pytest_kernelllm.session.session import open_session

    more = [Artifacts(options.artifacts)] if options.artifacts else []
    given = dict(pair.split("=", 1) for pair in options.set)
    chosen = {
        "generator": "inductor",
        "samples": options.samples,
        "min_speedup": 0.0,
        "deadline": 240,
        **given,
    }
    end = time.monotonic() + options.limit
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        targets = {}
        for job in jobs:
            level, _, name = job["problem"].partition("/")
            file = project / f"level{level}_{job['dtype']}" / f"{name}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(Path(job["file"]).read_text() + MARKED.format(dtype=job["dtype"]))
            [target] = scan_file(file, project).targets
            targets[target] = job
        settings = load_settings(project, chosen)
        with open_session(project, settings, generators=more, ahead=False) as session:

            def work(target: Target) -> Result:
                if time.monotonic() > end:
                    return {}
                start = time.monotonic()
                try:
                    outcomes = session.judged(target, [outcome for outcome, _ in session.drafts(target)])
                except SessionError as error:
                    return {"error": str(error), "candidates": []}
                took = round(time.monotonic() - start, 1)
                return {"seconds": took, "candidates": [_short(outcome) for outcome in outcomes]}

            for target in targets:
                session.announce(target)
            for target, result in side_by_side(work, list(targets), session.processes.side_by_side):
                if result:
                    yield {**targets[target], **result}


def _short(outcome: Any) -> dict[str, Any]:
    verdict: Verdict | None = outcome.verdict
    short = {"id": str(outcome.id), "reason": outcome.why, "note": getattr(outcome.candidate, "note", "")}
    if verdict is not None:
        short |= {"verdict": verdict.verdict, "correct": verdict.correct, "rule": verdict.rule}
        short |= {"timing": verdict.timing[0].to_json() if verdict.timing else None}
    return short


# --------------------------------------------------------------------------- torch.compile with its search


def tuned(options: argparse.Namespace, jobs: Sequence[Job]) -> Iterator[Result]:
    """Yields the times of eager and of both kinds of ``torch.compile``, each job's from a process of its own.

    Several compile at once, and one at a time has the GPU. Who does not get enough of its memory beside others is tried alone.
    """
    end = time.monotonic() + options.limit
    alone = []
    with ThreadPoolExecutor(options.jobs) as pool:
        begun = [pool.submit(in_own_process, job, end) for job in jobs]
        for result in (future.result() for future in as_completed(begun)):
            if (
                result is not None
                and "OutOfMemoryError" in result["beside"].get("error", "")
                and options.jobs > 1
            ):
                alone.append({name: str(result[name]) for name in ("problem", "file", "dtype")})
            elif result is not None:
                yield result
    for job in alone:
        if (result := in_own_process(job, end)) is not None:
            yield result


def in_own_process(job: Job, end: float) -> Result | None:
    """Returns what ``measure`` finds in another process, or its error; None once ``time.monotonic()`` is past ``end``."""
    if time.monotonic() > end:
        return None
    with tempfile.TemporaryDirectory() as cache:
        command = [sys.executable, __file__, "--measure", job["file"], job["dtype"]]
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=400, check=False
            )
        except subprocess.TimeoutExpired:
            return {**job, "beside": {"error": "took longer than 400 s"}}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        why = (done.stderr.strip().splitlines() or ["no reason"])[-1]
        return {**job, "beside": {"error": why}}
    return {**job, "beside": json.loads(lines[-1])}


def measure(file: Path, dtype: str) -> dict[str, Any]:
    """Returns the median µs of a problem's eager call and of both kinds of ``torch.compile``, with cold L2."""
    import torch
    from torch._inductor.runtime.benchmarking import benchmarker
    from triton.testing import do_bench

    waits: list[float] = []
    held = False

    def alone(timed: Callable[..., Any]) -> Callable[..., Any]:
        def timed_alone(*args: Any, **kwargs: Any) -> Any:
            nonlocal held
            if held:  # a product in parts is compiled when it is timed, and that times again
                return timed(*args, **kwargs)
            torch.cuda.synchronize()
            start = time.monotonic()
            with hold_gpu(gpu.uuid, alone=True):
                waits.append(time.monotonic() - start)
                held = True
                try:
                    return timed(*args, **kwargs)
                finally:
                    held = False

        return timed_alone

    gpu = find_gpus()[torch.cuda.current_device()]
    type(benchmarker).benchmark_gpu = alone(type(benchmarker).benchmark_gpu)  # type: ignore[method-assign]
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
            waits.clear()
            call(*inputs)
            torch.cuda.synchronize()
            found[f"{name}_seconds"] = round(time.monotonic() - start - sum(waits), 1)
            found[name] = 1e3 * float(alone(do_bench)(lambda call=call: call(*inputs), return_mode="median"))
            torch.compiler.reset()
    return found


if __name__ == "__main__":
    raise SystemExit(main())
