"""What becomes of a folder of completions for KernelBench: rendered, judged, right, and why not, by stage and reason.

    python benchmarks/completions.py FOLDER --kernelbench CHECKOUT [--device cpu] [--json OUT.jsonl] [--only 23_Softmax,40_LayerNorm]
    python benchmarks/completions.py FOLDER --kernelbench CHECKOUT --mutate 20000

A file belongs to the problem whose name its path contains (``level1/23_Softmax.py``, ``best_23_Softmax_1.py``), or that it
numbers (``level_1_problem_23_sample_0_kernel.py``). Every completion is rendered for the problem at its own sizes. On a GPU it
is judged at them, too; on a CPU at sizes that one rule shrinks, where Triton's interpreter ends in time. A completion that was
written for the own sizes alone is then counted under ``own sizes``. With ``--mutate``, that
many texts are rendered, and not judged: the completions after small accidents.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shrink import shrunk

from kernelllm_judge.core.records import Completion, Target, Verdict
from kernelllm_judge.render.answer_format import format_of
from kernelllm_judge.render.extract import ExtractError, extract
from pytest_kernelllm.beside.passk.problems import Problem, find_problems
from pytest_kernelllm.beside.verify.pairs import find_reference
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.pool.engine import judging_environment, open_engine
from pytest_kernelllm.pool.jobs import Engine, PoolJob, ProcessLost
from pytest_kernelllm.pool.messages import JudgeRequest, PrepareReply, PrepareRequest, message
from pytest_kernelllm.pool.pool_process import StageOverdue

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from mutations import mutated  # noqa: E402  # which lies there

COLUMNS = ("completions", "extracted", "rendered", "own sizes", "judged", "right")
AT_ONCE = 200
"""Texts of a problem that one job renders, as a job has a deadline."""
_SUFFIXES = (".py", ".md")
_NUMBERED = re.compile(r"level_?(\d)_problem_?(\d+)")


@dataclass(frozen=True)
class Result:
    """What became of a completion."""

    set: str
    """The folder that it is from, without the problem's own."""
    file: str
    problem: str
    stage: str
    """``problem``, ``extract``, ``render``, ``own sizes``, a stage of the judge, ``inconclusive`` or ``right``."""
    reason: str = ""


@dataclass(frozen=True)
class Text:
    """A completion and the problem that it is for."""

    set: str
    file: Path
    problem: Problem
    text: str

    def result(self, stage: str, reason: str = "") -> Result:
        """Returns what became of it."""
        return Result(self.set, self.file.as_posix(), str(self.problem), stage, reason)


def main() -> int:
    """Prints two tables; 1 if the renderer itself failed on some completion, or lost a process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", metavar="NAMES", help="problems, such as 23_Softmax,40_LayerNorm")
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--deadline", type=float, default=60.0, help="seconds that one completion may take")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--render-only", action="store_true", help="judge nothing")
    parser.add_argument("--mutate", type=int, metavar="N", help="render N texts with accidents")
    parser.add_argument("--seed", type=int, default=0, help="of the accidents")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write a line for each completion")
    options = parser.parse_args()
    problems = find_problems(options.kernelbench, (1, 2, 3))
    files = {problem: file for file, problem in problems.items()}
    texts = [
        text
        for text in find_texts(options.folder, list(files))
        if not options.only or Path(text.problem.name).stem in options.only.split(",")
    ]
    settings = replace(
        Settings(),
        device=options.device,
        deadline=options.deadline,
        workers=options.workers or Settings.workers,
        timing=False,
    )
    if options.mutate:
        dice = random.Random(options.seed)
        chosen = itertools.islice(itertools.cycle(texts), options.mutate)
        texts = [replace(text, text=mutated(text.text, dice)) for text in chosen]
    judged = not (options.render_only or options.mutate)
    results = list(measure(texts, files, settings, judged=judged))
    if options.json:
        lines = (json.dumps(asdict(result)) for result in sorted(results, key=lambda result: result.file))
        options.json.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{by_set(results)}\n\n{by_reason(results)}")
    return 1 if any("please report it" in r.reason or r.stage == "problem" for r in results) else 0


# --------------------------------------------------------------------------- which completions


def find_texts(folder: Path, problems: Sequence[Problem]) -> Iterator[Text]:
    """Yields the completions below a folder; files that belong to no problem are left out."""
    for file in sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES):
        place = file.relative_to(folder)
        problem = problem_of(place, problems)
        if problem is not None:
            name = _plain(Path(problem.name).stem)
            parts = [p for p in place.parts[:-1] if not re.fullmatch(r"level\d", p) and _plain(p) != name]
            yield Text("/".join(parts) or ".", place, problem, file.read_text("utf-8", errors="replace"))


def problem_of(place: Path, problems: Sequence[Problem]) -> Problem | None:
    """Returns the problem that a path names; the longest name counts."""
    if numbered := _NUMBERED.search(place.name):
        wanted = (int(numbered[1]), int(numbered[2]))
        return next((p for p in problems if (p.level, p.number) == wanted), None)
    level = next((int(p[5:]) for p in place.parts[:-1] if re.fullmatch(r"level\d", p)), None)
    here = [p for p in problems if level in (None, p.level)]
    stem = f"_{_plain(place.stem)}_"
    named = [p for p in here if f"_{_plain(Path(p.name).stem)}_" in stem]
    return max(named, key=lambda p: len(p.name), default=None)


def _plain(name: str) -> str:
    return re.sub(r"_+", "_", name).strip("_").lower()


# --------------------------------------------------------------------------- rendering and judging


def measure(
    texts: Sequence[Text], files: Mapping[Problem, Path], settings: Settings, *, judged: bool
) -> Iterator[Result]:
    """Renders and judges all completions, side by side.

    Args:
        texts: the completions.
        files: the problems' files.
        settings: where and with how many processes.
        judged: whether those that render are judged.
    """
    environment = judging_environment(settings)
    with (
        open_engine(settings, environment) as engine,
        tempfile.TemporaryDirectory() as scratch,
    ):
        rendered = []
        for text, stage, reason in _render(engine, texts, files):
            if stage:
                yield text.result(stage, reason)
            else:
                rendered.append(text)
        if not judged:
            yield from (text.result("rendered") for text in rendered)
            return
        references = files
        if environment.device == "cpu":
            references = _shrunk_files({text.problem for text in rendered}, files, Path(scratch))
        yield from _judge(engine, rendered, references, at_own_sizes=environment.device != "cpu")


def _render(
    engine: Engine, texts: Sequence[Text], files: Mapping[Problem, Path]
) -> Iterator[tuple[Text, str, str]]:
    """Yields each completion with the stage at which it failed, empty if it rendered, and the reason."""
    of_problem: defaultdict[Problem, list[Text]] = defaultdict(list)
    for text in texts:
        of_problem[text.problem].append(text)
    jobs, groups = [], {}
    for problem, all_of_it in of_problem.items():
        target = _target(files[problem])
        for start in range(0, len(all_of_it), AT_ONCE):
            name, group = f"{problem}, from {start}", all_of_it[start : start + AT_ONCE]
            completions = tuple(
                Completion("files", i, t.text, format_of(t.text)) for i, t in enumerate(group)
            )
            request = PrepareRequest(_hash(target), str(files[problem].parent), target, "", (), completions)
            jobs.append(PoolJob(name, str(problem), message(request)))
            groups[name] = group
    for job, answer in engine.run(jobs):
        group = groups[job.name]
        print(f"{job.name}: {len(group)}", file=sys.stderr)
        if isinstance(answer, ProcessLost | StageOverdue) or "error" in answer:
            why = answer["error"] if isinstance(answer, dict) else str(answer)
            yield from ((text, "problem", why) for text in group)
            continue
        for text, rendering in zip(group, PrepareReply.from_json(answer).renderings, strict=True):
            stage = "" if rendering.candidate else "render" if _has_code(text.text) else "extract"
            yield text, stage, rendering.refusal


def _judge(
    engine: Engine, texts: Sequence[Text], references: Mapping[Problem, Path], *, at_own_sizes: bool
) -> Iterator[Result]:
    jobs = []
    for number, text in enumerate(texts):
        file = references[text.problem]
        target = _target(file)
        request = JudgeRequest(
            _hash(target), str(file.parent), target, "", text.text, text.file.name, 0.0, "eager", timing=False
        )
        jobs.append(PoolJob(str(number), str(text.problem), message(request)))
    for job, answer in engine.run(jobs):
        text = texts[int(job.name)]
        if isinstance(answer, ProcessLost | StageOverdue):
            result = text.result("inconclusive", str(answer))
        else:
            verdict = Verdict.from_json(answer["verdict"])
            stage = {"accepted": "right", "inconclusive": "inconclusive"}.get(verdict.verdict, verdict.stage)
            if stage == "render" and not at_own_sizes:
                stage = "own sizes"
            result = text.result(stage, verdict.reason)
        print(f"{result.file}: {result.stage}: {result.reason}", file=sys.stderr)
        yield result


def _shrunk_files(
    problems: set[Problem], files: Mapping[Problem, Path], folder: Path
) -> Mapping[Problem, Path]:
    """Writes the problems at small sizes."""
    written = {}
    for problem in problems:
        written[problem] = folder / str(problem)
        written[problem].parent.mkdir(exist_ok=True)
        written[problem].write_text(shrunk(files[problem].read_text(encoding="utf-8")), encoding="utf-8")
    return written


def _target(file: Path) -> Target:
    target = find_reference(str(file))
    if isinstance(target, str):
        raise SystemExit(target)
    return target


def _hash(target: Target) -> str:
    return hashlib.sha256(f"{target.path} {target.source_hash}".encode()).hexdigest()


def _has_code(text: str) -> bool:
    try:
        extract(text)
    except ExtractError:
        return False
    return True


# --------------------------------------------------------------------------- tables


def by_set(results: Sequence[Result]) -> str:
    """Returns a Markdown table with a row for each set."""
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for name in (result.set, "all"):
            rows[name].update(_columns(result.stage))
    lines = ["| set | " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * len(COLUMNS)]
    lines += [
        f"| {name} | " + " | ".join(str(rows[name][column]) for column in COLUMNS) + " |"
        for name in [*sorted(rows.keys() - {"all"}), "all"]
    ]
    return "\n".join(lines)


def _columns(stage: str) -> Iterator[str]:
    yield "completions"
    if stage in ("extract", "problem"):
        return
    yield "extracted"
    if stage == "render":
        return
    yield "rendered"
    if stage == "own sizes":
        yield "own sizes"
    elif stage not in ("rendered", "inconclusive"):
        yield "judged"
    if stage == "right":
        yield "right"


def by_reason(results: Sequence[Result]) -> str:
    """Returns a Markdown table of stages and reasons, the most frequent first; names and numbers count as equal."""
    counts = Counter((result.stage, _kind(result.reason)) for result in results if result.stage != "right")
    example: dict[tuple[str, str], Any] = {}
    for result in results:
        example.setdefault((result.stage, _kind(result.reason)), result.file)
    lines = ["| stage | reason | number | example |", "|---|---|---:|---|"]
    lines += [f"| {s} | {kind} | {n} | {example[s, kind]} |" for (s, kind), n in counts.most_common()]
    return "\n".join(lines)


def _kind(reason: str) -> str:
    kind = re.sub(r"`[^`]*`", "`…`", reason.partition("\n")[0])
    kind = re.sub(r"\([^()]*\)", "(…)", kind)
    return re.sub(r"\d[\d.,]*", "N", kind).replace("|", "\\|")[:140]


if __name__ == "__main__":
    raise SystemExit(main())
