"""JSON Schemas of a benchmark and of an optimized model, derived from their records, and of all that is published.

``python -m pytest_kernelllm.beside.passk.schema docs/schema`` writes the files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pytest_kernelllm.beside.passk.records import Benchmark
from pytest_kernelllm.beside.whole.answer import Answer
from pytest_kernelllm.report.schema import DRAFT, report_schema, schema_of, verdict_schema


def passk_schema() -> dict[str, Any]:
    """Returns the schema of ``kernelllm bench --json``."""
    return {"$schema": DRAFT, "title": "pytest-kernelllm pass@k", **schema_of(Benchmark)}


def optimize_schema() -> dict[str, Any]:
    """Returns the schema of ``kernelllm optimize --json``."""
    return {"$schema": DRAFT, "title": "pytest-kernelllm optimize", **schema_of(Answer)}


def write_schemas(folder: Path) -> None:
    """Writes ``report.json``, ``verdict.json``, ``passk.json`` and ``optimize.json``."""
    schemas = {
        "report": report_schema(),
        "verdict": verdict_schema(),
        "passk": passk_schema(),
        "optimize": optimize_schema(),
    }
    for name, schema in schemas.items():
        (folder / f"{name}.json").write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
