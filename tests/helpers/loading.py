"""Targets of a file, imported."""

from __future__ import annotations

from pathlib import Path

from kernelllm_judge.target.live import LiveTarget, load_target
from pytest_kernelllm.discover.scan import scan_file


def load(file: Path, name: str = "") -> LiveTarget:
    """The target of this name, or the only one of a file."""
    [target] = [target for target in scan_file(file, file.parent).targets if name in ("", target.name)]
    return load_target(file.parent, target)
