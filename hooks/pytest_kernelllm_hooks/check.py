"""``kernelllm-check``: checks that markers are well-formed, and adopted kernels present, unedited and up to date."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from pytest_kernelllm_hooks.concerned import concerned, naming, removed


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per problem, ``path:line: what; what to do``. Returns 1 if there is any, else 0."""
    options = _parser().parse_args(argv)
    root = Path(options.root).absolute()
    every = options.all or not (options.files or options.removed)
    given = _below(root) if every else (Path(file).absolute() for file in options.files)
    files = concerned(given)
    if options.removed and not every and (gone := removed()):
        files += [file for file in naming(gone, _below(root)) if file not in files]
    if not files:
        return 0

    from pytest_kernelllm.core.words import from_here
    from pytest_kernelllm_hooks.findings import Doubt, Misnamed, findings, fix

    failed = False
    for finding in dict.fromkeys(findings(files, root)):
        message = finding.message
        kernel = fix(root, finding) if options.fix and isinstance(finding, Misnamed) else None
        if kernel is not None:
            message = f"{message.partition(';')[0]}; now it names {kernel}"
        failed = failed or not (kernel or isinstance(finding, Doubt))
        print(f"{from_here(root, finding.path)}:{finding.line}: {message}")
    return int(failed)


def _below(root: Path) -> Iterator[Path]:
    from pytest_kernelllm.discover.scan import python_files

    return python_files(root)


def _parser() -> argparse.ArgumentParser:
    # Without a width, argparse imports shutil to find the terminal's: some milliseconds in every commit.
    formatter = partial(argparse.HelpFormatter, width=100)
    parser = argparse.ArgumentParser("kernelllm-check", description=__doc__, formatter_class=formatter)
    parser.add_argument("files", nargs="*", help="changed files, as pre-commit passes them (default: all)")
    parser.add_argument(
        "--all", action="store_true", help="check every Python file below the root, whichever are named"
    )
    parser.add_argument(
        "--removed",
        action="store_true",
        help="check the files whose markers name what the commit removes; without files, no others",
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="write the names of kernels that were moved or renamed into markers",
    )
    parser.add_argument(
        "--root", default=".", metavar="DIR", help="the project's root, as pytest's rootdir (default .)"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
