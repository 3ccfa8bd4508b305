"""The modules that the test model knows as a user's project, and ``pytest --kernelllm`` over them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_kernelllm.discover.scan import scan_file

from .lessons import HERE

OPTIONS = (
    "--kernelllm-only",
    "--kernelllm-device=cpu",
    "--kernelllm-set=max_new_tokens=640",
    "--kernelllm-report=report.json",
    "-p",
    "no:cacheprovider",
)


@dataclass(frozen=True)
class Project:
    """A folder with the modules."""

    path: Path

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """``pytest --kernelllm`` in a process of its own."""
        return self.python("-m", "pytest", *OPTIONS, *arguments, **environ)

    def python(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Python in the project's folder. One thread: torch's wait for each other where others compute too."""
        clean = {name: value for name, value in os.environ.items() if "TOKEN" not in name}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.path,
            env=clean | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def copy(self, path: Path) -> Project:
        """The project with all that its store knows."""
        shutil.copytree(self.path, path)
        return Project(path)

    def report(self) -> dict[str, list[dict[str, Any]]]:
        """The candidates in the last run's JSON report, by target."""
        report = json.loads((self.path / "report.json").read_text(encoding="utf-8"))
        return {entry["target"]["name"]: entry["candidates"] for entry in report["targets"]}

    def verdicts(self) -> dict[str, list[tuple[str, str]]]:
        """Verdict and rule of each candidate in the last run's report, by target; of those without one the reason."""
        return {
            name: [
                (c["verdict"]["verdict"], c["verdict"]["rule"]) if c["verdict"] else ("", c["reason"])
                for c in candidates
            ]
            for name, candidates in self.report().items()
        }

    def completions(self, store: str = ".kernelllm") -> dict[str, dict[int, str]]:
        """What a language model wrote, from the store: texts by target and index."""
        found: dict[str, dict[int, str]] = {}
        for target in scan_file(self.path / "layers.py", self.path).targets:
            kept = self.path / store / "targets" / target.source_hash / "completions"
            for path in sorted(kept.glob("*/[0-9]*.json")):
                body = json.loads(path.read_text(encoding="utf-8"))["body"]
                if body["generator"] in ("local", "endpoint") and body["text"]:
                    texts = found.setdefault(target.name, {})
                    assert body["index"] not in texts, "two identities in one store"
                    texts[body["index"]] = body["text"].strip()
        return found


def lay_out(path: Path) -> Project:
    """Write the modules into ``path``."""
    path.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "layers.py", path / "layers.py")
    (path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", encoding="utf-8")
    return Project(path)
