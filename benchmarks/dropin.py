"""Public answers through KernelBench's own harness, with its evaluation and with this judge's in its place.

Each answer goes through ``evaluate_single_sample`` of KernelBench's ``scripts/eval_from_generations.py`` twice; the second time
``eval_kernel_against_ref`` is this judge's, which is one assignment. What either says is set beside errors against float64, which
neither computes: at inputs as the problem draws them, at normal ones, these shifted by 64, these times 100, and these with a NaN.
Inputs are drawn on the GPU. An answer is right by float64 if its errors are at most 16 times those that PyTorch makes in float32, and
NaN is where PyTorch's is. Needs a checkout of KernelBench and a GPU, and takes several.

    python -m benchmarks dropin --kernelbench CHECKOUT --answers FOLDER [--answers FOLDER] [--count 20] [--limit 230]

``FOLDER`` holds files with a class ``ModelNew``, each named after its problem (``23_Softmax.py``, or a folder ``23_Softmax``) or by
its number (``level_1_problem_23_sample_0_kernel.py``). One answer of each problem comes first, then the second ones. The public sets
of the last survey are ``output/search``, ``output/zeroshot/gpt-5`` and ``output/zeroshot/gemini-2.5-pro`` of
https://github.com/adityakotha03/tritonLLM at 0e70fe5.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from benchmarks.checkout import import_from, script
from benchmarks.rows import ROOT, Row

AT_ONCE = {"theirs": 2, "ours": 4, "float64": 2}
"""How many evaluations of each way run on a GPU at the same time: inputs in float64 take tens of gigabytes."""

RIGHT = 16.0
"""Times the error that PyTorch makes in float32."""

FORM = ("render", "static check")
"""Stages at which an answer is stopped for its form, before anything of it runs or is compiled."""

DRAWS = ("given", "normal", "shifted", "wide", "with a NaN")
"""What answers are compared at with float64."""

_NUMBERED = re.compile(r"level_?(\d)_problem_?(\d+)")


@dataclass(frozen=True)
class Answer:
    """A public answer to one of KernelBench's problems."""

    file: Path
    problem: Path

    @property
    def name(self) -> str:
        """The problem's and the set's."""
        folders = [part for part in self.file.parts[:-1] if part != self.problem.stem]
        return f"{self.problem.parent.name}/{self.problem.stem}, {folders[-1]}"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--answers", type=Path, action="append", required=True, metavar="FOLDER")
    parser.add_argument("--count", type=int, default=20, help="how many answers at most")
    parser.add_argument("--limit", type=float, default=230.0, metavar="SECONDS", help="for all of it")
    parser.add_argument("--each", type=float, default=90.0, metavar="SECONDS", help="for one evaluation")


def run(options: argparse.Namespace) -> Iterator[Row]:
    """Yields a row for each answer, 1 where it is accepted; then how often either accepts, and with whom float64 sides."""
    checkout = options.kernelbench.resolve()
    if not (checkout / "scripts" / "eval_from_generations.py").is_file():
        raise SystemExit(
            f"{checkout} is no checkout of KernelBench: it has no scripts/eval_from_generations.py."
        )
    answers = list(itertools.islice(_in_turns(_found(options.answers, checkout)), options.count))
    if not answers:
        raise SystemExit(
            "No file in the folders is named after one of KernelBench's problems of levels 1 to 3."
        )
    end = time.monotonic() + options.limit
    gpus = _gpus()
    free: dict[str, SimpleQueue[str]] = {way: SimpleQueue() for way in AT_ONCE}
    for way, count in AT_ONCE.items():
        for gpu in gpus * count:
            free[way].put(gpu)
    with contextlib.ExitStack() as stack:
        threads = {
            way: stack.enter_context(ThreadPoolExecutor(count * len(gpus))) for way, count in AT_ONCE.items()
        }

        def evaluated(way: str, answer: Answer) -> dict[str, Any]:
            gpu = free[way].get()
            try:
                room = min(options.each, end - time.monotonic())
                return _apart(way, checkout, answer, gpu, room) if room > 10 else {"why": "no time was left"}
            finally:
                free[way].put(gpu)

        begun = [
            (answer, [pool.submit(evaluated, way, answer) for way, pool in threads.items()])
            for answer in answers
        ]
        counted: Counter[str] = Counter()
        for answer, parts in begun:
            theirs, ours, truth = (part.result() for part in parts)
            counted.update(_counts(theirs, ours, truth))
            yield _row(answer, theirs, ours, truth)
    for name in (
        "judged, not stopped for their form",
        "decided by both",
        "accepted by KernelBench",
        "accepted by this judge",
    ):
        yield Row(f"answers {name}, of {len(answers)}", "", None, counted[name], "")
    sides = counted["this judge is right"], counted["KernelBench is right"]
    yield Row("disagreements in which float64 sides with it", "KernelBench", sides[1], sides[0], "")


def _gpus() -> list[str]:
    """The GPUs that this process may use, as ``CUDA_VISIBLE_DEVICES`` names them."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]


def _found(folders: list[Path], checkout: Path) -> Iterator[Answer]:
    problems = sorted(checkout.glob("KernelBench/level[1-3]/[0-9]*.py"))
    named = {problem.stem.strip("_"): problem for problem in problems}
    numbered = {(p.parent.name[-1], p.stem.partition("_")[0]): p for p in problems}
    for folder in folders:
        for file in sorted(folder.resolve().rglob("*.py")):
            own = [file.stem, *(parent.name for parent in file.parents)]
            number = _NUMBERED.search(file.stem)
            problem = next((named[each.strip("_")] for each in own if each.strip("_") in named), None)
            problem = numbered.get((number[1], number[2])) if number else problem
            if problem is not None:
                yield Answer(file, problem)


def _in_turns(answers: Iterator[Answer]) -> Iterator[Answer]:
    """Yields the first answer of each problem, then the second ones, and so on."""
    by_problem: defaultdict[Path, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_problem[answer.problem].append(answer)
    for turn in itertools.zip_longest(*by_problem.values()):
        yield from filter(None, turn)


# --------------------------------------------------------------------------- what is said of them


def _verdict(found: dict[str, Any]) -> str:
    return "–" if found.get("passed") is None else "accepts" if found["passed"] else "refuses"


def _right(truth: dict[str, Any]) -> bool | None:
    errors = [truth[draw] for draw in DRAWS if draw in truth]
    if not errors:
        return None
    # Where PyTorch itself is off by more than all, as with sums that overflow, the draw says nothing.
    return all(new <= RIGHT * max(own, 2.0**-23) for new, own in errors if own < 1.0)


def _side(theirs: dict[str, Any], ours: dict[str, Any], truth: dict[str, Any]) -> str:
    right, said = _right(truth), (theirs.get("passed"), ours.get("passed"))
    if None in (right, *said) or said[0] == said[1]:
        return ""
    return "this judge is right" if said[1] == right else "KernelBench is right"


def _counts(theirs: dict[str, Any], ours: dict[str, Any], truth: dict[str, Any]) -> Iterator[str]:
    if ours.get("judged"):
        yield "judged, not stopped for their form"
    if None not in (theirs.get("passed"), ours.get("passed")):
        yield "decided by both"
        yield from ["accepted by KernelBench"] if theirs["passed"] else []
        yield from ["accepted by this judge"] if ours["passed"] else []
    yield _side(theirs, ours, truth)


def _row(answer: Answer, theirs: dict[str, Any], ours: dict[str, Any], truth: dict[str, Any]) -> Row:
    errors = [
        f"{draw} {truth[draw][0]:.1e} (PyTorch {truth[draw][1]:.1e})" for draw in DRAWS if draw in truth
    ]
    words = [
        f"KernelBench {_verdict(theirs)}, this judge {_verdict(ours)}",
        _side(theirs, ours, truth),
        str(ours.get("why") or "")[:120],
        f"float64: {', '.join(errors) or truth.get('why') or 'nothing'}"[:160],
    ]
    values = [None if each.get("passed") is None else float(each["passed"]) for each in (theirs, ours)]
    note = " ".join("; ".join(filter(None, words)).split())  # in one line
    return Row(answer.name, "KernelBench", values[0], values[1], "", note=note)


# --------------------------------------------------------------------------- one evaluation, in a process of its own


def _apart(way: str, checkout: Path, answer: Answer, gpu: str, limit: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        level, number = answer.problem.parent.name[-1], answer.problem.stem.partition("_")[0]
        kernel = Path(folder) / f"level_{level}_problem_{number}_sample_0_kernel.py"
        kernel.write_text(answer.file.read_text(encoding="utf-8"), encoding="utf-8")
        reply = Path(folder) / "reply.json"
        asked = {
            "way": way,
            "checkout": str(checkout),
            "level": int(level),
            "number": int(number),
            "folder": folder,
        }
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.dropin", json.dumps(asked)],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=os.environ | {"TMPDIR": folder, "CUDA_VISIBLE_DEVICES": gpu},
        ) as process:
            try:
                said = process.communicate(timeout=limit)[1]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return {"why": f"it took more than {limit:.0f} s"}
        if not reply.is_file():
            return {"why": said.decode(errors="replace").strip().rpartition("\n")[2] or "its process died"}
        found: dict[str, Any] = json.loads(reply.read_text(encoding="utf-8"))
        return found


def _evaluate_here(asked: dict[str, Any]) -> dict[str, Any]:
    import torch

    checkout, folder = Path(asked["checkout"]), asked["folder"]
    if torch.cuda.is_available():
        torch.set_default_device("cuda")  # problems draw on the CPU else, which takes most of an evaluation
    import_from(checkout)
    if asked["way"] == "float64":
        return _errors(asked)
    harness = script(checkout, "eval_from_generations")
    if asked["way"] == "ours":
        from kernelllm_judge import kernelbench

        harness.eval_kernel_against_ref = kernelbench.eval_kernel_against_ref
    configs = SimpleNamespace(
        level=asked["level"],
        dataset_src="local",
        kernel_eval_build_dir=folder,
        run_name="run",
        measure_performance=False,
        timing_method="cuda_event",
        verbose=False,
        num_correct_trials=5,
        num_perf_trials=100,
        backend="triton",
        precision="fp32",
    )
    dataset = harness.construct_kernelbench_dataset(
        asked["level"], "local", base_path=str(checkout / "KernelBench"), problem_ids=[asked["number"]]
    )
    work = harness.WorkArgs(asked["number"], 0, torch.device("cuda:0"))
    result = harness.evaluate_single_sample(work, configs, dataset, folder)
    if result is None:
        return {"why": "KernelBench asks to try again"}
    names = (
        "undecided",
        "compilation_error",
        "runtime_error",
        "correctness_issue",
        "other_error",
        "cuda_error",
    )
    key = next((name for name in names if name in result.metadata), "")
    passed = None if key in ("undecided", "other_error") and asked["way"] == "ours" else result.correctness
    judged = passed is not None and result.metadata.get("kernelllm", {}).get("stage") not in FORM
    return {"passed": passed, "judged": judged, "why": str(result.metadata.get(key, ""))}


def _errors(asked: dict[str, Any]) -> dict[str, Any]:
    """Returns the largest errors of an answer and of PyTorch against float64, for each draw of inputs."""
    import torch
    from kernelbench.dataset import construct_kernelbench_dataset
    from kernelbench.eval import load_custom_model_with_tempfile, set_seed

    dataset = construct_kernelbench_dataset(
        asked["level"], "local", base_path=f"{asked['checkout']}/KernelBench", problem_ids=[asked["number"]]
    )
    [kernel] = Path(asked["folder"]).glob("level_*.py")
    problem: dict[str, Any] = {}
    exec(dataset.get_problem_by_id(asked["number"]).code, problem)
    try:
        new_class, _ = load_custom_model_with_tempfile(
            kernel.read_text(encoding="utf-8"), entry_point="ModelNew"
        )
        models = []
        for cls in (problem["Model"], new_class):
            set_seed(42)
            given = problem["get_init_inputs"]()
            set_seed(42)
            models.append(cls(*given).eval())
        found: dict[str, Any] = {}
        for draw in DRAWS:
            set_seed(43)
            inputs = [_drawn(x, draw) for x in problem["get_inputs"]()]
            with torch.no_grad():
                new, own = (model(*_copied(inputs, torch.float32)) for model in reversed(models))
                exact = models[0].double()(*_copied(inputs, torch.float64))
                models[0].float()
                found[draw] = [_error(each, exact) for each in (new, own)]
        return found
    except Exception as error:  # the answer's own
        return {"why": f"{type(error).__name__}: {error}"[:160]}


def _drawn(value: Any, draw: str) -> Any:
    import torch

    if draw == "given" or not (torch.is_tensor(value) and value.is_floating_point()):
        return value
    drawn = torch.randn_like(value)
    if draw == "shifted":
        drawn += 64
    elif draw == "wide":
        drawn *= 100
    elif draw == "with a NaN":
        drawn.view(-1)[drawn.numel() // 2] = float("nan")
    return drawn


def _error(output: Any, exact: Any) -> float:
    """The largest error of an output, as a share of the largest exact value; infinite where NaN is not where it should be."""
    if bool((output.isnan() != exact.isnan()).any()):
        return float("inf")
    known = exact.isfinite()
    largest = exact.where(known, 0.0).abs().max()
    return float((output - exact).where(known, 0.0).abs_().max() / largest)


def _copied(inputs: list[Any], dtype: Any) -> list[Any]:
    import torch

    return [
        (x.to(dtype) if x.is_floating_point() else x).clone() if torch.is_tensor(x) else x for x in inputs
    ]


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    answered = _evaluate_here(request)
    (Path(request["folder"]) / "reply.json").write_text(json.dumps(answered), encoding="utf-8")
