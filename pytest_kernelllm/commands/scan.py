"""``kernelllm scan``: lists the targets in files and folders."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pytest_kernelllm.commands.common import OK, REJECTED
from pytest_kernelllm.commands.project import project_here
from pytest_kernelllm.discover.scan import scan

HELP = "List the targets found in files and folders, without importing them."


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("paths", nargs="*", default=["."], help="files and folders (default: here)")
    parser.add_argument(
        "--kernelbench", action="store_true", help="include files in KernelBench's form (Model, get_inputs)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, one target per line")


def run(options: argparse.Namespace) -> int:
    """Runs the command; exit code 0 if there is a target, else 1."""
    paths = [Path(path).resolve() for path in options.paths]
    found = scan(paths, project_here().root, kernelbench=options.kernelbench)
    for target in found.targets:
        adopted = f"  adopted {target.kernel}" if target.kernel else ""
        plain = f"{target.id}  line {target.line}  {target.source_hash[:12]}{adopted}"
        print(json.dumps(target.to_json()) if options.json else plain)
    for problem in found.problems:
        print(f"kernelllm: {problem}", file=sys.stderr)
    if not found.targets and not found.problems:
        from pytest_kernelllm.discover.notebooks import marked_notebooks

        notebooks = [each for path in paths if path.is_dir() for each in marked_notebooks(path)]
        hint = f"; {notebooks[0]} is a notebook: move its class to a .py file" if notebooks else ""
        print(f"kernelllm: no @triton_candidate in {' '.join(options.paths)}{hint}", file=sys.stderr)
    return OK if found.targets else REJECTED
