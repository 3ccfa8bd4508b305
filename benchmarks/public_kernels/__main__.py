"""Cuts public Triton kernels out of checkouts, as pairs that ``kernelllm verify`` judges.

    python -m benchmarks.public_kernels --liger CHECKOUT --gems CHECKOUT --fla CHECKOUT --triton CHECKOUT --out PAIRS
    kernelllm verify --pairs PAIRS --device cpu

``PAIRS/NAME/reference.py`` is the operation in PyTorch, ``PAIRS/NAME/candidate.py`` the kernel as a kernel module.
Projects without a checkout are left out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.public_kernels.catalogue import read
from benchmarks.public_kernels.cut import CutError, Project, cut
from benchmarks.public_kernels.projects import PROJECTS


def main() -> int:
    """Writes the pairs; 1 if some kernel could not be cut out."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    for name, project_of in PROJECTS.items():
        parser.add_argument(f"--{name}", type=Path, metavar="CHECKOUT", help=_help(project_of))
    parser.add_argument("--out", type=Path, required=True, metavar="PAIRS", help="a folder, made if need be")
    given = vars(parser.parse_args())
    written, failed = 0, 0
    for name, project_of in PROJECTS.items():
        if given[name] is None:
            continue
        project = project_of(given[name])
        for entry in read(name):
            try:
                kernels = cut(project, Path(entry.file), entry.names.split())
            except CutError as error:
                print(f"{entry.name}: {error}", file=sys.stderr)
                failed += 1
                continue
            folder = given["out"] / entry.name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "reference.py").write_text(entry.reference_source(), encoding="utf-8")
            (folder / "candidate.py").write_text(entry.candidate_source(kernels), encoding="utf-8")
            written += 1
    print(f"{written} pairs in {given['out']}" + (f", {failed} not cut out" if failed else ""))
    return 1 if failed else 0


def _help(project_of: Callable[[Path], Project]) -> str:
    return (project_of.__doc__ or "").removeprefix("Returns ").rstrip(".")


if __name__ == "__main__":
    sys.exit(main())
