"""Reads a data set's file, JSON lines or Parquet through pyarrow, and writes JSON lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_kernelllm.beside.kernelbook.row import KernelBookError
from pytest_kernelllm.store.entry import write_atomic

SUFFIXES = (".jsonl", ".parquet")


def is_data_set(path: Path) -> bool:
    """Whether a path names a data set rather than a Python file or a folder."""
    return path.suffix in SUFFIXES


def read(path: Path) -> list[dict[str, Any]]:
    """Returns a file's rows.

    Raises:
        KernelBookError: it cannot be read, or is not in the form that its name says.
    """
    try:
        return _read_parquet(path) if path.suffix == ".parquet" else _read_lines(path)
    except OSError as error:
        raise KernelBookError(f"{path} cannot be read: {error.strerror or error}.") from None


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes rows as JSON lines to a file, which is replaced as a whole.

    Raises:
        KernelBookError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows).encode())
    except OSError as error:
        raise KernelBookError(f"{path} cannot be written: {error.strerror or error}.") from None


def _read_lines(path: Path) -> list[dict[str, Any]]:
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise KernelBookError(f"{path}, line {number} is not JSON; one row is one line.") from None
            if not isinstance(row, dict):
                raise KernelBookError(f"{path}, line {number} is no row: write one JSON object a line.")
            rows.append(row)
    return rows


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    pyarrow = _pyarrow()
    try:
        with path.open("rb") as file:
            rows: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
    except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
        raise KernelBookError(f"{path} is not a Parquet file.") from None
    return rows


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise KernelBookError(
            "pyarrow is not installed; run `pip install 'pytest-kernelllm[kernelbench]'`, or use a .jsonl file."
        ) from None
    return pyarrow
