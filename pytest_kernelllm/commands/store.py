"""``kernelllm store``: what is known about candidates."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_kernelllm.commands.common import OK, REJECTED, CommandError, settings_of
from pytest_kernelllm.core.records import KernelRecord
from pytest_kernelllm.core.words import counted
from pytest_kernelllm.discover.scan import scan
from pytest_kernelllm.store import Store
from pytest_kernelllm.store.hub import HubError, HubStore, Pulled
from pytest_kernelllm.store.signing import VARIABLE

HELP = "Look into the store of candidates and verdicts, and share it."


def add(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "action",
        choices=("list", "show", "verify", "gc", "push", "pull"),
        help="list verdicts; show one by the start of its hash; verify every entry; gc what no target in PATHS needs; "
        "push verdicts to, or pull them from, hf://datasets/OWNER/NAME",
    )
    parser.add_argument("arguments", nargs="*", help="a hash (show), paths (gc), an address (push, pull)")
    parser.add_argument(
        "--unsigned",
        action="store_true",
        help=f"pull without {VARIABLE}: believe whoever may write to that repository",
    )


def run(options: argparse.Namespace) -> int:
    """Exit code: 1 where an entry is damaged."""
    store = Store(Path.cwd(), settings_of(options).store)
    if options.action in ("push", "pull"):
        return _share(store, options)
    records = list(store.verdicts)
    if options.action == "list":
        _list(records)
    elif options.action == "show":
        _show(records, options.arguments[0] if options.arguments else "")
    elif options.action == "gc":
        print(f"forgot {counted(store.gc(_needed(options.arguments or ['.'])), 'target')}")
    else:
        print(f"{counted(len(records), 'verdict')} can be read")
    for problem in store.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    return REJECTED if store.problems else OK


def _needed(paths: Sequence[str]) -> set[str]:
    """Source hashes of all targets in files and folders, also of those that only ``kernelllm bench`` looks at.

    Raises:
        CommandError: some of them cannot be found, so that what is known about them would be forgotten.
    """
    found = scan([Path(path) for path in paths], Path.cwd(), kernelbench=True)
    wrong = [f"there is no {path}" for path in paths if not Path(path).exists()]
    wrong += [str(problem).rstrip(".") for problem in found.problems]
    if not found.targets and not wrong:
        wrong = [f"there is no target in {' '.join(paths)}"]
    if wrong:
        raise CommandError(f"Nothing is forgotten, because not all targets can be found: {'; '.join(wrong)}.")
    return {target.source_hash for target in found.targets}


def _share(store: Store, options: argparse.Namespace) -> int:
    """Push or pull. Exit code: 1 where something of the repository could not be used."""
    if len(options.arguments) != 1:
        raise CommandError(f"`kernelllm store {options.action}` takes one address: hf://datasets/OWNER/NAME.")
    if options.action == "pull" and not (store.signs or options.unsigned):
        raise CommandError(
            f"{VARIABLE} is not set, so whoever may write to {options.arguments[0]} would decide which kernels count as "
            "verified here; set it, or say --unsigned if you trust them."
        )
    address, pulled = options.arguments[0], Pulled()
    try:
        hub = HubStore(address, lambda text: print(f"kernelllm: {text}", file=sys.stderr))
        if options.action == "push":
            count, new = hub.push(store)
            print(f"{address} has {counted(count, 'verdict')} of {store.path.name}/, {new} of them new")
        else:
            pulled = hub.pull(store)
            print(f"{counted(pulled.taken, 'verdict')} taken from {address}, {pulled.known} known before")
    except HubError as error:
        raise CommandError(str(error)) from None
    if pulled.unsigned:
        left = counted(pulled.unsigned, "verdict")
        print(f"{left} left there that {VARIABLE} did not sign", file=sys.stderr)
    if pulled.unusable:
        left = counted(pulled.unusable, "file")
        print(f"{left} left there: damaged, too large or of another version", file=sys.stderr)
    for problem in store.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    return REJECTED if pulled.unusable else OK


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
