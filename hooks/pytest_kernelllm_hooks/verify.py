"""``kernelllm-verify``: runs the project's pytest on the targets in changed files, which judges and stores verdicts."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_kernelllm_hooks.concerned import concerned


def main(argv: Sequence[str] | None = None) -> int:
    """Runs pytest and returns its exit code; 0 at once if no target is concerned."""
    options, for_pytest = _parser().parse_known_args(argv)
    root = Path(options.root).absolute()
    files = concerned(Path(file).absolute() for file in options.files)
    targets = _files_with_targets(files, root) if files else []
    if not targets:
        return 0
    command = [sys.executable, "-m", "pytest", "--kernelllm", "--kernelllm-only", f"--rootdir={root}"]
    # A target without a kernel must not block a push, whatever the project requires in CI.
    environment = {**os.environ, "KERNELLLM_REQUIRE_KERNELS": "0"}
    return subprocess.run(
        [*command, *for_pytest, *targets], cwd=root, env=environment, check=False
    ).returncode


def _files_with_targets(files: Sequence[Path], root: Path) -> list[str]:
    from kernelllm_runtime.source.resolve import ProjectSources
    from pytest_kernelllm_hooks.changes import changes

    return sorted({target.path for target in changes(files, ProjectSources(root)).targets})


def _parser() -> argparse.ArgumentParser:
    # Abbreviations are not allowed: every other option is passed to pytest.
    parser = argparse.ArgumentParser("kernelllm-verify", description=__doc__, allow_abbrev=False)
    parser.add_argument("files", nargs="*", help="changed files, as pre-commit passes them")
    parser.add_argument(
        "--root", default=".", metavar="DIR", help="the project's root, as pytest's rootdir (default .)"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
