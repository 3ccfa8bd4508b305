"""``kernelllm store``: shows and shares what the store knows about candidates."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from kernelllm_judge.core.records import KernelRecord, Ratio, mean_ratio
from pytest_kernelllm.commands.common import OK, REJECTED, CommandError
from pytest_kernelllm.commands.project import project_here
from pytest_kernelllm.core.history import Run
from pytest_kernelllm.core.words import counted, say
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.report.fitted import NAME, SENTENCE, Column, fitted, rendered, terminal_width
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.hub import HubError, HubStore, Pulled
from pytest_kernelllm.store.signing import VARIABLE

HELP = "Show, check, clean and share the store of candidates and verdicts."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument(
        "action",
        choices=("list", "show", "runs", "verify", "gc", "push", "pull"),
        help="list verdicts; show one by the start of its hash; list recorded runs, or the kernels of one by the start of its "
        "id or its name; verify every entry; gc deletes what no target in PATHS needs; "
        "push verdicts to, or pull them from, hf://datasets/OWNER/NAME",
    )
    parser.add_argument(
        "arguments", nargs="*", help="a hash (show), an id (runs), paths (gc), an address (push, pull)"
    )
    parser.add_argument(
        "--unsigned",
        action="store_true",
        help=f"pull without {VARIABLE}: trust everybody who may write to that repository",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 1 if an entry is damaged, else 0."""
    project = project_here()
    store = project.store
    if options.action in ("push", "pull"):
        return _share(store, options)
    records = list(store.verdicts)
    runs = list(store.runs)
    if options.action == "list":
        if records:
            print(listed(records, terminal_width()))
    elif options.action == "show":
        if not options.arguments:
            raise CommandError(
                "`kernelllm store show` takes the start of a hash, as `kernelllm store list` shows it."
            )
        _show(records, options.arguments[0])
    elif options.action == "runs":
        _runs(runs, *options.arguments[:1])
    elif options.action == "gc":
        deleted = store.gc(_needed(options.arguments or [str(project.root)], project.root))
        print(f"deleted the entries of {counted(deleted, 'target')}")
    else:
        print(f"{counted(len(records), 'verdict')} and {counted(len(runs), 'recorded run')} intact")
    say(*store.problems)
    return REJECTED if store.problems else OK


def _needed(paths: Sequence[str], root: Path) -> set[str]:
    """The source hashes of all targets in files and folders, KernelBench problems included.

    Raises:
        CommandError: some of them cannot be found, so their entries would be deleted.
    """
    found = scan([Path(path).resolve() for path in paths], root, kernelbench=True)
    wrong = [f"there is no {path}" for path in paths if not Path(path).exists()]
    wrong += [str(problem).rstrip(".") for problem in found.problems]
    if not found.targets and not wrong:
        wrong = [f"there is no target in {' '.join(paths)}"]
    if wrong:
        raise CommandError(f"Nothing was deleted, because not all targets can be found: {'; '.join(wrong)}.")
    return {target.source_hash for target in found.targets}


def _share(store: Store, options: argparse.Namespace) -> int:
    """Pushes or pulls; exit code 1 if something in the repository could not be used."""
    if len(options.arguments) != 1:
        raise CommandError(f"`kernelllm store {options.action}` takes one address: hf://datasets/OWNER/NAME.")
    if options.action == "pull" and not (store.key or options.unsigned):
        raise CommandError(
            f"{VARIABLE} is not set, so everybody who may write to {options.arguments[0]} could decide which kernels count as "
            "verified here; set it, or use --unsigned if you trust them."
        )
    address, pulled = options.arguments[0], Pulled()
    try:
        hub = HubStore(address, say)
        if options.action == "push":
            count, new = hub.push(store)
            print(f"{address} has {counted(count, 'verdict')} of {store.path.name}/, {new} of them new")
        else:
            pulled = hub.pull(store)
            print(f"{counted(pulled.taken, 'verdict')} taken from {address}, {pulled.known} known before")
    except HubError as error:
        raise CommandError(str(error)) from None
    if pulled.unsigned:
        skipped = counted(pulled.unsigned, "verdict")
        print(f"{skipped} skipped: not signed with {VARIABLE}", file=sys.stderr)
    if pulled.unusable:
        skipped = counted(pulled.unusable, "file")
        print(f"{skipped} skipped: damaged, too large or of another version", file=sys.stderr)
    say(*store.problems)
    return REJECTED if pulled.unusable else OK


def listed(records: Sequence[KernelRecord], width: int) -> str:
    """Returns a table of verdicts, at most so wide."""
    columns = [
        Column("kernel"),
        Column("verdict", drop=1, shorten=SENTENCE),
        Column("speed", drop=2),
        Column("target", shorten=NAME),
        Column("reason", drop=3, shorten=SENTENCE),
    ]
    rows = [
        [
            each.verdict.kernel_hash[:12],
            each.verdict.verdict,
            _speed(each.verdict.speedup).strip(),
            escape(each.target),  # as other commands take it
            escape(each.verdict.reason),
        ]
        for each in records
    ]
    return rendered(width, False, fitted(columns, rows, width))


def _show(records: Sequence[KernelRecord], prefix: str) -> None:
    match = [r for r in records if r.verdict.kernel_hash.startswith(prefix)]
    if not match:
        raise CommandError(f"No verdict's hash starts with {prefix!r}; `kernelllm store list` shows them.")
    print(json.dumps(match[0].to_json(), indent=1))


def _runs(runs: Sequence[Run], chosen: str = "") -> None:
    if not chosen:
        for run in runs:
            where = run.environment
            slower = sum(kernel.slower for kernel in run.kernels)
            print(
                f"{run.id}  {run.name or '-':12}  {where.gpu or 'no GPU'}  torch {where.torch}  triton {where.triton}  "
                + counted(len(run.kernels), "kernel")
                + (f", {slower} slower than before" if slower else "")
            )
        return
    match = [run for run in runs if run.name == chosen or run.id.startswith(chosen)]
    if not match:
        raise CommandError(f"No recorded run is called {chosen!r}; `kernelllm store runs` lists them.")
    for kernel in match[-1].kernels:
        speedup = mean_ratio([timing.speedup for timing in kernel.timing])
        result = "wrong" if not kernel.correct else "slower than before" if kernel.slower else ""
        print(f"{kernel.kernel_hash[:12]}  {_speed(speedup)}  {kernel.target}  {result}".rstrip())


def _speed(speedup: Ratio | None) -> str:
    return f"{f'{speedup.value:.2f}x' if speedup else '-':>7}"
