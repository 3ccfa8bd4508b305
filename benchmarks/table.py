"""Prints a run's report (``pytest --kernelllm --kernelllm-report FILE``) as a Markdown table of its best kernels.

python benchmarks/table.py report.json
"""

import json
import sys
from pathlib import Path


def main(path: str) -> None:
    report = json.loads(Path(path).read_text())
    environment = report["environment"]
    print(
        f"{environment['gpu']}, driver {environment['driver']}, torch {environment['torch']}, triton {environment['triton']}\n"
    )
    print(
        "| target | case | kernel µs | eager µs | compile µs | vs eager (95 %) | vs compile | roofline | candidate |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|---|")
    for target in report["targets"]:
        timed = [c for c in target["candidates"] if c["verdict"] and c["verdict"]["timing"]]
        best = next((c for c in timed if c["id"] == target["best"]), None)
        name = target["target"]["name"]
        if best is None:
            reason = next((c["reason"] or c["verdict"]["reason"] for c in target["candidates"]), "")
            print(f"| {name} | | | | | | | | {reason} |")
            continue
        for t in best["verdict"]["timing"]:
            s, c = t["speedup"], t["speedup_compiled"]
            both = t.get("passes", "forward") != "forward"
            case = t["case"] + (", both passes" if both else "")
            compiled = f"{t['compiled']['p50']:.1f} | " if t["compiled"] else "– | "
            print(
                f"| {name} | {case} | {t['kernel']['p50']:.1f} | {t['eager']['p50']:.1f} | {compiled}"
                f"{s['value']:.2f} [{s['low']:.2f}, {s['high']:.2f}] | {c['value']:.2f} | "
                f"{t['roofline_share']:.0%} | {best['note']} |"
            )


if __name__ == "__main__":
    main(sys.argv[1])
