"""JSON Schema of a benchmark, derived from its records.

``python -m pytest_kernelllm.beside.passk.schema docs/schema`` writes the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pytest_kernelllm.beside.passk.records import Benchmark
from pytest_kernelllm.report.schema import DRAFT, schema_of


def passk_schema() -> dict[str, Any]:
    """Returns the schema of ``kernelllm bench --json``."""
    return {"$schema": DRAFT, "title": "pytest-kernelllm pass@k", **schema_of(Benchmark)}


def write_schema(folder: Path) -> None:
    """Writes ``passk.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "passk.json").write_text(json.dumps(passk_schema(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_schema(Path(sys.argv[1]))
