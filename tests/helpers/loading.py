"""Targets of a file, imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kernelllm_judge.core.records import Target
from kernelllm_judge.target.importing import marked_class
from kernelllm_judge.target.live import LiveTarget, live_class
from pytest_kernelllm.discover.scan import scan_file


def load(file: Path, name: str = "") -> LiveTarget:
    """The target of this name, or the only one of a file, as ``pinned``."""
    [target] = [target for target in scan_file(file, file.parent).targets if name in ("", target.name)]
    return pinned(file.parent, target)


def pinned(root: Path, target: Target) -> LiveTarget:
    """A target of which only those sizes vary that its marker names."""
    cls, options = marked_class(target, (root / target.path).resolve(), root.absolute())
    return live_class(target, cls, replace(options, dims=options.dims or {}))
