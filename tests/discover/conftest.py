"""A project in a temporary folder, whose modules are forgotten after the test."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest


class ProjectFolder:
    """Files written from indented text."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, **files: str) -> Path:
        """Write ``name.py`` for every keyword; the root."""
        return self.write_files({f"{name}.py": text for name, text in files.items()})

    def write_files(self, files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text), encoding="utf-8")
        return self.root


@pytest.fixture
def project(tmp_path: Path) -> Iterator[ProjectFolder]:
    path = list(sys.path)
    yield ProjectFolder(tmp_path)
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__dict__", {}).get("__file__") or "").startswith(str(tmp_path)):
            del sys.modules[name]
