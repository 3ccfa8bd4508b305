"""What the search gains: KernelBench's problems in eager, by torch.compile, and by Inductor's programs without and with it.

    python benchmarks/search.py --kernelbench CHECKOUT [--search 10] [--out search.json] 1/23 1/36 2/21 …

Each problem is written, searched, judged and timed as by ``kernelllm bench``, twice: without a search and with one. Every
figure is the verdict's own. Problems are named LEVEL/NUMBER; without any, all of ``PROBLEMS``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelllm_judge.core.records import Target
from pytest_kernelllm.beside.passk.command import scan_problems
from pytest_kernelllm.beside.passk.problems import find_problems
from pytest_kernelllm.config.settings import Settings
from pytest_kernelllm.session.session import open_session

PROBLEMS = (
    *("1/23", "1/36", "1/38", "1/43", "1/45", "1/47", "1/49", "1/82", "1/84", "1/85", "1/86", "1/87"),
    *("1/89", "1/95", "2/13", "2/21", "2/24", "2/25", "2/32"),
)
"""Where Inductor's own search gained most, and where its programs lost to ``torch.compile``."""


def main() -> int:
    """Prints a line for every problem, and the geometric means; 1 if a program was refused."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("problems", nargs="*", metavar="LEVEL/NUMBER")
    parser.add_argument("--kernelbench", type=Path, required=True, metavar="CHECKOUT")
    parser.add_argument("--search", type=float, default=10.0, metavar="SECONDS", help="a problem")
    parser.add_argument("--deadline", type=float, default=180.0, metavar="SECONDS")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    options = parser.parse_args()
    targets = _targets(options.kernelbench, options.problems or PROBLEMS)
    print(
        "problem | eager µs | torch.compile µs | ours µs | searched µs | of torch.compile | roofline | s | found"
    )
    rows = []
    # A folder of its own: what an earlier run measured would cost no time.
    with tempfile.TemporaryDirectory() as folder:
        usual = Settings(
            generator="inductor",
            samples=1,
            min_speedup=0.0,
            deadline=options.deadline,
            search=0.0,
            store=folder,
        )
        searching = dataclasses.replace(usual, search=options.search)
        for name, target in targets.items():
            rows.append({"problem": name, "without": _run(usual, target), "with": _run(searching, target)})
            print(_line(rows[-1]), flush=True)
    for kind in ("without", "with"):
        ratios = [row[kind]["compiled"] / row[kind]["kernel"] for row in rows if row[kind].get("compiled")]
        if ratios:
            print(
                f"{kind} search: {statistics.geometric_mean(ratios):.3f} of torch.compile ({len(ratios)} problems)"
            )
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))
    return 0 if all("kernel" in row["with"] for row in rows) else 1


def _targets(checkout: Path, names: Sequence[str]) -> dict[str, Target]:
    levels = sorted({int(name.split("/")[0]) for name in names})
    found = {
        f"{each.level}/{each.number}": (path, each) for path, each in find_problems(checkout, levels).items()
    }
    return {name: scan_problems(dict([found[name]]), Path.cwd())[0].targets[0] for name in names}


def _run(settings: Settings, target: Target) -> dict[str, Any]:
    """Returns the figures of the first candidate; its ``why`` where it has none."""
    start = time.perf_counter()
    with open_session(Path.cwd(), settings) as session:
        [(draft, completion)] = session.drafts(target)
        written = time.perf_counter() - start
        [outcome] = session.judged(target, [draft])
    figures: dict[str, Any] = {"note": completion.note, "seconds": round(written, 1), "why": outcome.why}
    for timing in outcome.verdict.timing if outcome.verdict else ():
        figures |= {
            "kernel": timing.kernel.p50,
            "eager": timing.eager.p50,
            "compiled": timing.compiled.p50 if timing.compiled else None,
            "roofline_share": timing.roofline_share,
        }
    return figures


def _line(row: dict[str, Any]) -> str:
    usual, searched = row["without"], row["with"]
    if "kernel" not in searched:
        return f"{row['problem']} | {searched['why'] or searched['note']}"
    compiled = searched["compiled"] or float("nan")
    cells = [
        row["problem"],
        f"{searched['eager']:,.1f}",
        f"{compiled:,.1f}",
        f"{usual.get('kernel', float('nan')):,.1f}",
        f"{searched['kernel']:,.1f}",
        f"{compiled / searched['kernel']:.2f}",
        f"{searched['roofline_share']:.0%}",
        f"{searched['seconds']:.1f}",
        searched["note"],
    ]
    return " | ".join(cells)


if __name__ == "__main__":
    raise SystemExit(main())
