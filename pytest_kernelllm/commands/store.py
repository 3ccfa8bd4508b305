"""``kernelllm store``: what is known about candidates."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_kernelllm.commands.common import OK, REJECTED, CommandError, settings_of
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.records import KernelRecord
from pytest_kernelllm.store import Store

HELP = "Look into the store of candidates and verdicts."


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "action",
        choices=("list", "show", "verify", "gc"),
        help="list verdicts; show one by the start of its hash; verify every entry; gc what no target in PATHS needs",
    )
    parser.add_argument("arguments", nargs="*", help="a hash (show) or paths (gc)")


def run(options: argparse.Namespace) -> int:
    """Exit code: 1 where an entry is damaged."""
    store = Store(Path.cwd(), settings_of(options).store)
    records = list(store.verdicts())
    if options.action == "list":
        _list(records)
    elif options.action == "show":
        _show(records, options.arguments[0] if options.arguments else "")
    elif options.action == "gc":
        found = scan([Path(p) for p in options.arguments or ["."]], Path.cwd())
        print(f"forgot {store.gc({t.source_hash for t in found.targets})} targets")
    else:
        print(f"{len(records)} verdicts are whole")
    for problem in store.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    return REJECTED if store.problems else OK


def _list(records: Sequence[KernelRecord]) -> None:
    for record in records:
        verdict = record.verdict
        speed = f"{verdict.speedup.value:.2f}x" if verdict.speedup else "-"
        print(
            f"{verdict.kernel_hash[:12]}  {verdict.verdict:12}  {speed:>7}  {record.target}  {verdict.reason[:80]}"
        )


def _show(records: Sequence[KernelRecord], wanted: str) -> None:
    match = [r for r in records if wanted and r.verdict.kernel_hash.startswith(wanted)]
    if not match:
        raise CommandError(f"No verdict's hash starts with {wanted!r}; `kernelllm store list` shows them.")
    print(json.dumps(match[0].to_json(), indent=1))
