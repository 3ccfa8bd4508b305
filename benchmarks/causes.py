"""Why kernels for KernelBench's problems stay below the roofline: where the time of a call goes, kernel by kernel.

    python benchmarks/causes.py --kernelbench CHECKOUT --out causes.jsonl [1/23 level2 2/17 ...] [--limit 540] [--search 10]
    python benchmarks/causes.py --out causes.jsonl --table

The Inductor generator writes a kernel for each problem, which is not judged; a process of its own times and profiles it at the
problem's own sizes in float32, on a cold L2. Each result is appended to ``--out`` as a line of JSON as soon as it is there;
problems that have a line are left out, also where it holds an error: remove it to try again. Needs a GPU; the table does not.

The roofline is the judge's: inputs, weights and outputs, each once, at the bandwidth of a copy, or the FLOPs at the rate of a
product, whichever takes longer. What an own kernel moves is its tensor arguments, each once, whatever L2 holds of them.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from against_compile import problems
from causes_table import kind_of, sums, table
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves
from triton.runtime.jit import JITFunction

from kernelllm_judge.core.errors import SessionError
from kernelllm_judge.environment import find_gpus
from kernelllm_judge.gpu_lock import hold_gpu
from kernelllm_judge.shared.clock import GpuClock
from kernelllm_judge.target.importing import import_file
from kernelllm_judge.timing.baselines import Baseline
from kernelllm_judge.timing.roofline import count_flops, measure_roofline
from kernelllm_judge.timing.timing import flushes_to_hide
from kernelllm_judge.truth.prepared import bytes_of, tensors_of_call
from pytest_kernelllm.beside.passk.side_by_side import side_by_side
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.discover.scan import scan_file
from pytest_kernelllm.session.session import Session, open_session

TIMED, PROFILED = 15, 3
"""Calls that are timed, and calls that are profiled."""

LIMIT_S = 90
"""Seconds that a problem's process may take once it has the GPU."""

Result = dict[str, Any]


def main() -> int:
    """Measures what is missing, or prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problems", nargs="*", metavar="PROBLEM", help="1, level2, 2/17; by default 1 and 2")
    parser.add_argument("--kernelbench", type=Path, metavar="CHECKOUT")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--limit", type=float, default=math.inf, metavar="SECONDS", help="begin none later")
    parser.add_argument(
        "--search", type=float, default=0.0, metavar="SECONDS", help="for the fastest program"
    )
    parser.add_argument("--table", action="store_true", help="print the table of what is there, no more")
    parser.add_argument("--measure", nargs=2, type=Path, metavar=("FILE", "KERNEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        if sys.stdin.readline():  # the GPU is ours
            print(json.dumps(measure(*options.measure)))
        return 0
    if options.out is None or not (options.table or options.kernelbench):
        parser.error("name --out and --kernelbench (or --table)")
    if options.table:
        print(table([*known(options.out).values()]))
        return 0
    if not find_gpus():
        print("benchmarks/causes.py needs a CUDA GPU to time kernels on, and finds none.", file=sys.stderr)
        return 2
    for result in explained(options, list(missing(options))):
        with options.out.open("a", encoding="utf-8") as file:
            print(json.dumps(result), file=file)
        shown = result.get("error") or f"{result['share']:.0%} of the roofline, {result['us']:,.0f} µs"
        print(f"{result['problem']}: {shown}", file=sys.stderr, flush=True)
    return 0


def known(out: Path) -> dict[str, Result]:
    """Returns the results that are there, by problem."""
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    return {result["problem"]: result for result in map(json.loads, lines)}


def missing(options: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Yields names and files of the problems that are named and have no result yet."""
    there = known(options.out)
    for problem, file in problems(options.kernelbench, options.problems or ["1", "2"]):
        if problem not in there:
            yield problem, file


# --------------------------------------------------------------------------- written, each measured by itself


def explained(options: argparse.Namespace, jobs: Sequence[tuple[str, Path]]) -> Iterator[Result]:
    """Yields where the time of each problem's kernel goes; kernels are written side by side, and measured one by one."""
    end = time.monotonic() + options.limit
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(generator="inductor", samples=1, search=options.search, store=folder)
        with open_session(options.kernelbench.resolve(), settings, ahead=False) as session:

            def work(job: tuple[str, Path]) -> Result:
                _, file = job
                if time.monotonic() > end:
                    return {}
                kernel = Path(folder) / f"{file.parent.name}_{file.stem}.py"
                try:
                    return {"note": write(session, file, kernel), **measured_alone(file, kernel)}
                except (SessionError, ValueError) as error:
                    return {"error": str(error)}

            for (problem, _), result in side_by_side(work, jobs, session.processes.side_by_side):
                if result:
                    yield {"problem": problem, **result}


def write(session: Session, file: Path, kernel: Path) -> str:
    """Has a kernel module written to a file. Returns the note on how it was made.

    Raises:
        ValueError: there is none.
        SessionError: the problem cannot be imported, built or called.
    """
    [target] = scan_file(file, session.context.root, kernelbench=True).targets
    for draft, completion in session.drafts(target):
        if draft.candidate is None:
            raise ValueError(draft.why)
        kernel.write_text(draft.candidate.source, encoding="utf-8")
        return completion.note
    raise ValueError("the generator wrote nothing")


def measured_alone(file: Path, kernel: Path) -> Result:
    """Measures in a process that has the GPU to itself; its imports are done before.

    Raises:
        ValueError: it failed, or took too long.
    """
    command = [sys.executable, __file__, "--measure", str(file), str(kernel)]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe) as process,
        hold_gpu(find_gpus()[0].uuid, alone=True),
    ):
        try:
            out, errors = process.communicate("go\n", timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise ValueError(f"took longer than {LIMIT_S} s") from None
    if process.returncode or not out.strip():
        raise ValueError((errors.strip().splitlines() or ["no reason"])[-1])
    result: Result = json.loads(out.splitlines()[-1])
    return result


# --------------------------------------------------------------------------- on the GPU


def measure(file: Path, kernel: Path) -> Result:
    """Returns the µs of a kernel module's calls, of each kernel in them, and what the roofline counts."""
    clock = GpuClock()
    roofline = measure_roofline(clock)
    torch.cuda.empty_cache()
    names = vars(import_file(file, file.parent))
    with torch.device("cuda"), torch.no_grad():
        torch.manual_seed(0)
        original = names["Model"](*names["get_init_inputs"]()).eval()
        inputs = names["get_inputs"]()
        outputs: list[Any] = []
        flops = count_flops(lambda: outputs.append(original(*inputs)))
    moved = bytes_of(tensors_of_call(original, dict(enumerate(inputs)), tree_leaves(outputs)))  # type: ignore[arg-type]
    outputs.clear()
    torch.cuda.empty_cache()
    forward = import_file(kernel, kernel.parent).forward

    def call() -> Any:
        return forward(original, *inputs)

    with torch.no_grad():
        own = launched(call, kernel.read_text(encoding="utf-8"))
        implementation = Baseline("kernel", call, clock)
        flushes = flushes_to_hide([implementation], clock.flush_us())["kernel"]
        us = statistics.median(implementation.cold(flushes) for _ in range(TIMED))
        kernels = profiled(call, clock)
    if unseen := own.keys() - {each["name"] for each in kernels}:
        raise RuntimeError(f"the profiler saw nothing of {', '.join(sorted(unseen))}")
    for each in kernels:
        each["kind"] = kind_of(each["name"], own)
        if each["kind"] == "own":
            each |= own[each["name"]]
            each["share"] = each["bytes"] / each["us"] / roofline.bytes_per_us
    least = roofline.microseconds(moved, flops, "float32")
    result = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "us": us,
        "roofline_us": least,
        "share": least / us,
        "bytes": moved,
        "bytes_per_us": roofline.bytes_per_us,
        "flops": flops.total,
        "convolution_flops": flops.convolutions,
        "computing_us": roofline.microseconds(0, flops, "float32"),
        "kernels": kernels,
    }
    return result | sums(result)


def profiled(call: Callable[[], Any], clock: GpuClock) -> list[Result]:
    """Returns the µs and the launches of each kernel in a call on a cold L2, by name: means over some calls."""
    spent: Counter[str] = Counter()
    launches: Counter[str] = Counter()
    for turn in range(1 + PROFILED):
        clock.flush(1)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            call()
            torch.cuda.synchronize()
        for event in profiler.key_averages() if turn else ():  # the first one sets the profiler up
            if event.device_type.name == "CUDA":
                spent[event.key] += event.self_device_time_total
                launches[event.key] += event.count
    return [
        {"name": name, "us": us / PROFILED, "calls": launches[name] / PROFILED}
        for name, us in spent.most_common()
    ]


def launched(call: Callable[[], Any], source: str) -> dict[str, Result]:
    """Makes a call. Returns what each own kernel that it launches moves, by the kernel's name.

    ``reads`` and ``writes`` have the bytes of its tensor arguments, ``bytes`` is the sum of both, ``again`` what further loops
    over the same argument read, and ``product`` says whether it multiplies matrices.
    """
    uses = accesses(source)
    found: dict[str, Result] = {}
    run = JITFunction.run

    def noted(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        name, given = kernel.fn.__name__, dict(zip(kernel.arg_names, args, strict=False)) | kwargs
        loops, stored, product = uses[name]
        new = {"reads": Counter[str](), "writes": Counter[str](), "again": 0, "product": product}
        this = found.setdefault(name, new)
        for side, of in (("reads", loops.keys() | given.keys() - stored), ("writes", stored)):
            tensors = {n: t for n, t in given.items() if n in of and isinstance(t, torch.Tensor)}
            # Each place in memory once.
            for n in {tensor.data_ptr(): n for n, tensor in tensors.items()}.values():
                size = min(bytes_of([tensors[n]]), tensors[n].untyped_storage().nbytes())
                this[side][n.removesuffix("_ptr")] += size
                this["again"] += size * (loops.get(n, 1) - 1) if side == "reads" else 0
        this["bytes"] = this["reads"].total() + this["writes"].total()
        return run(kernel, *args, **kwargs)

    JITFunction.run = noted  # type: ignore[method-assign]
    try:
        call()
    finally:
        JITFunction.run = run  # type: ignore[method-assign]
    return found


def accesses(source: str) -> dict[str, tuple[dict[str, int], set[str], bool]]:
    """Returns, for each function, in how many loops a name is loaded from, the names stored to, and whether it multiplies matrices.

    Loads outside of loops count as one; so do all loads in one loop, which mostly read neighbours.
    """

    def used(node: ast.AST, *functions: str) -> set[str]:
        calls = (n for n in ast.walk(node) if isinstance(n, ast.Call) and ast.unparse(n.func) in functions)
        return {n.id for call in calls for n in ast.walk(call.args[0]) if isinstance(n, ast.Name)}

    found = {}
    for function in ast.parse(source).body:
        if isinstance(function, ast.FunctionDef):
            loops = Counter(
                n for each in function.body if isinstance(each, ast.For) for n in used(each, "tl.load")
            )
            loaded = {name: max(1, loops[name]) for name in used(function, "tl.load")}
            stored = used(function, "tl.store", "tl.atomic_add")
            found[function.name] = loaded, stored, bool(used(function, "tl.dot"))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
