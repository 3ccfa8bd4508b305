"""The corpus through KernelBench's own evaluation and static checker, beside this project's judge, in one run.

    python benchmarks/against_kernelbench.py --kernelbench CHECKOUT --out FOLDER
    python benchmarks/against_kernelbench.py --kernelbench CHECKOUT --out FOLDER --static-only

``CHECKOUT`` as in ``kernelbench_eval.py``. Needs a GPU, except with ``--static-only``. Every one of its evaluations has a
process of its own with a time limit. Candidates that touch files, processes or the network do not run there, because nothing
holds them back; the table names them. ``FOLDER`` receives ``results.json`` and ``table.md``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from kernelbench_eval import evaluate, import_kernelbench, is_checkout

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.corpus.corpus import subject_file  # noqa: E402
from tests.corpus.entries import Entry, as_problem, load  # noqa: E402

HARMFUL = re.compile(
    r"^\s*(?:import|from)\s+(?:{0})\b|[\"'](?:{0})[\"']|\bopen\(|torch\.(?:save|load|from_file)\b|load_inline".format(
        "asyncio|ctypes|gc|http|mmap|multiprocessing|os|pathlib|pty|resource|shutil|signal|socket|subprocess|sys|tempfile|urllib"
    ),
    re.MULTILINE,
)
"""Text in a candidate that may leave its process; such candidates are left out of the other harness."""

REFERENCE = "reference"
"""The name under which a subject's own module stands as its candidate: may it pass at all?"""


def candidate_text(subject: str, source: str | None) -> str:
    """A candidate as KernelBench wants it: ``ModelNew``, whose ``forward`` is the kernel module's.

    Args:
        subject: stem of the subject's file, which the evaluating process can import.
        source: the kernel module; None for the subject's own module.
    """
    body = "    pass" if source is None else "    forward = forward"
    return f"{source or ''}\n\nfrom {subject} import Model as _Target\n\n\nclass ModelNew(_Target):\n{body}\n"


def evaluate_subject(checkout: Path, subject: str, source: str | None, limit: float) -> dict[str, Any]:
    """One evaluation by KernelBench; ``source`` as in ``candidate_text``."""
    candidate = candidate_text(subject, source)
    return evaluate(checkout, as_problem(subject), candidate, limit, subject_file(subject).parent)


def check_statically(entry: Entry) -> dict[str, Any]:
    """KernelBench's static checker over the candidate as it is evaluated."""
    from kernelbench.kernel_static_checker import validate_kernel_static

    start = time.perf_counter()
    valid, errors, warnings = validate_kernel_static(
        candidate_text(entry.subject, entry.text), backend="triton", precision="fp32"
    )
    milliseconds = (time.perf_counter() - start) * 1e3
    return {"passed": valid, "errors": errors, "warnings": warnings, "milliseconds": milliseconds}


def judge(entries: list[Entry], jobs: int) -> dict[str, dict[str, Any]]:
    """This project's verdicts, by candidate."""
    from tests.corpus.corpus import CorpusJudge

    corpus_judge = CorpusJudge("cuda", jobs)
    return {
        o.entry.name: {"status": o.status, "rule": o.rule, "reason": o.reason, "seconds": o.seconds}
        for o in corpus_judge.judge(
            entries, report=lambda o: print(f"  judge  {o.entry.name}: {o.caught}", flush=True)
        )
    }


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Everything measured, as JSON."""
    entries = [e for e in load(options.only) if e.runs_on("cuda")]
    found: dict[str, Any] = {
        "candidates": [
            {"name": e.name, "kind": e.kind, "subject": e.subject, "family": e.family, "story": e.story}
            | {"static": check_statically(e), "left_out": bool(HARMFUL.search(e.text))}
            for e in entries
        ]
    }
    if options.static_only:
        return found
    import torch

    found["gpu"], found["torch"] = torch.cuda.get_device_name(), torch.__version__
    texts = {e.name: e.text for e in entries}
    named = {c["name"]: c for c in found["candidates"]}

    def theirs(name: str) -> None:
        candidate = named[name]
        candidate["kernelbench"] = evaluate_subject(
            options.kernelbench, candidate["subject"], texts[name], options.limit
        )
        print(
            f"  kernelbench  {name}: {'passed' if candidate['kernelbench']['passed'] else 'refused'}",
            flush=True,
        )
        _keep(options.out, found)

    def original(subject: str) -> Any:
        return evaluate_subject(options.kernelbench, subject, None, options.limit)

    with ThreadPoolExecutor(options.jobs) as pool:
        subjects = sorted({e.subject for e in entries})
        found["subjects"] = dict(zip(subjects, pool.map(original, subjects), strict=True))
        list(pool.map(theirs, [c["name"] for c in named.values() if not c["left_out"]]))
    ours = judge(entries, options.judge_jobs)
    for name, candidate in named.items():
        candidate["judge"] = ours[name]
    _keep(options.out, found)
    # Seconds are taken with the GPU to itself: a few honest candidates once more, one after the other.
    alone = [e for e in entries if e.kind == "honest" and found["subjects"][e.subject]["passed"]][
        : options.alone
    ]
    found["alone"] = {
        "kernelbench": [
            evaluate_subject(options.kernelbench, e.subject, e.text, options.limit) for e in alone
        ],
        "judge": list(judge(alone, 1).values()),
    }
    return found


def _keep(folder: Path, found: dict[str, Any]) -> None:
    (folder / "results.json").write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")


def report(found: dict[str, Any]) -> str:
    """Markdown: the rates, the seconds, and one row a candidate."""
    candidates = found["candidates"]
    ran = "subjects" in found
    fair = [
        c for c in candidates if not ran or (not c["left_out"] and found["subjects"][c["subject"]]["passed"])
    ]
    cheats = [c for c in fair if c["kind"] == "cheat"]
    honest = [c for c in fair if c["kind"] == "honest"]
    ways = {"KernelBench, static checker": lambda c: c["static"]["passed"]}
    if ran:
        ways["KernelBench, eval_kernel_against_ref"] = lambda c: c["kernelbench"]["passed"]
        ways["… and no warning of excessive speedup"] = lambda c: (
            c["kernelbench"]["passed"] and not c["kernelbench"]["suspected"]
        )
        ways["KernelBench, both"] = lambda c: c["static"]["passed"] and c["kernelbench"]["passed"]
        ways["this judge"] = lambda c: c["judge"]["status"] == "accepted"
    lines = ["| | cheats caught | honest refused |", "|---|---:|---:|"]
    for name, passes in ways.items():
        caught, refused = sum(not passes(c) for c in cheats), sum(not passes(c) for c in honest)
        lines.append(f"| {name} | {caught} of {len(cheats)} | {refused} of {len(honest)} |")
    left_out = [c["name"] for c in candidates if c["left_out"]]
    lines += [
        "",
        f"Left out, because they touch files, processes or the network: {', '.join(left_out) or 'none'}.",
    ]
    if ran:
        cannot = [name for name, subject in found["subjects"].items() if not subject["passed"]]
        lines += [
            f"Subjects whose own module does not pass KernelBench, left out: {', '.join(cannot) or 'none'}."
        ]
        theirs, ours = found["alone"]["kernelbench"], found["alone"]["judge"]
        done = [t["seconds"] for t in theirs if t["seconds"]]
        if done and ours:
            lines += [
                f"Seconds a candidate, alone on a {found['gpu']} (median of {len(ours)} honest ones): KernelBench "
                f"{median(done):.2f} and {median(t['process_seconds'] for t in theirs):.1f} with its process; this judge "
                f"{median(o['seconds'] for o in ours):.2f} warm.",
            ]
    lines += [
        "",
        "| candidate | what it is | static checker | evaluation | this judge |",
        "|---|---|---|---|---|",
    ]
    for c in candidates:
        kernelbench, judged = c.get("kernelbench"), c.get("judge")
        cells = [
            "passes" if c["static"]["passed"] else "refused: " + "; ".join(c["static"]["errors"]),
            "–" if kernelbench is None else "passes" if kernelbench["passed"] else "refused",
            "–" if judged is None else judged["rule"] if judged["status"] == "rejected" else judged["status"],
        ]
        lines.append(f"| {c['name']} | {c['family'] or 'honest'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--only", default="*", metavar="GLOB", help="candidates by name, e.g. 'softmax__*'")
    parser.add_argument("--jobs", type=int, default=8, help="evaluations by KernelBench at once")
    parser.add_argument("--judge-jobs", type=int, default=8, help="candidates in this judge at once")
    parser.add_argument("--alone", type=int, default=5, help="candidates timed one after the other")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds for one evaluation")
    parser.add_argument(
        "--static-only", action="store_true", help="only KernelBench's static checker; needs no GPU"
    )
    options = parser.parse_args()
    options.kernelbench = options.kernelbench.resolve()
    if not is_checkout(options.kernelbench):
        print(f"{options.kernelbench} is no checkout of KernelBench: it has no src/kernelbench/eval.py.")
        return 2
    import torch

    if not options.static_only and not torch.cuda.is_available():
        print(
            "This comparison needs a CUDA GPU; --static-only runs KernelBench's static checker without one."
        )
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    import_kernelbench(options.kernelbench)
    found = compare(options)
    _keep(options.out, found)
    text = report(found)
    (options.out / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
