"""One pair of KernelBook, in the columns of the data set GPUMODE/KernelBook."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelllm_judge.core.errors import SessionError


class KernelBookError(SessionError):
    """A file that cannot be read or written, or a pair that cannot be made; one sentence."""


@dataclass(frozen=True)
class Pair:
    """A module and its kernels, as the two texts of one row."""

    entry_point: str
    """Name of the class in ``python_code``; the one in ``triton_code`` has ``New`` after it."""
    python_code: str
    """A self-contained module with that class, ``get_inputs()`` and ``get_init_inputs()``, which returns
    ``[arguments, keyword arguments]`` of the constructor."""
    triton_code: str
    """A self-contained module with the class that replaces it; empty in a data set of problems."""


@dataclass(frozen=True)
class Origin:
    """Where a pair comes from."""

    repo_name: str
    """``owner/name``, or the project's name if it has no public repository."""
    licenses: tuple[str, ...]
    """SPDX identifiers or expressions."""
    sha: str | None = None
    """The commit that holds the module as it was verified; None if no commit does."""
    repo_link: str | None = None


def row(
    pair: Pair, module_name: str, kernel_module: str, origin: Origin, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns a row: KernelBook's twelve columns in their order, and ``provenance``.

    Args:
        kernel_module: the kernel module that was verified in the project; KernelBook has the compiler's output there.
    """
    return {
        "entry_point": pair.entry_point,
        "original_triton_code": kernel_module,
        "python_code": pair.python_code,
        "triton_code": pair.triton_code,
        "repo_name": origin.repo_name,
        "module_name": module_name,
        "synthetic": False,
        "uuid": _uuid(pair),
        "licenses": list(origin.licenses),
        "stars": None,
        "sha": origin.sha,
        "repo_link": origin.repo_link,
        "provenance": dict(provenance),
    }


def _uuid(pair: Pair) -> int:
    """Returns a number that names a pair in every export: 53 bits, which all readers of JSON keep exactly."""
    text = f"{pair.python_code}\0{pair.triton_code}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 11


def pair_of(row: Mapping[str, Any]) -> Pair:
    """Returns the pair of a row of any data set in KernelBook's form.

    Raises:
        KernelBookError: a column is missing or holds no text.
    """
    texts = [row.get(name) for name in ("entry_point", "python_code")]
    for name, text in zip(("entry_point", "python_code"), texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise KernelBookError(f"it has no text in the column {name}")
    triton = row.get("triton_code")
    return Pair(str(texts[0]), str(texts[1]), triton if isinstance(triton, str) else "")
