"""Finds where a project's modules come from: its repository, commit and licence."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pytest_kernelllm.beside.kernelbook.row import KernelBookError, Origin
from pytest_kernelllm.core.git import git_says

_LICENSE = re.compile(r"[\w.+-]+(?: (?:AND|OR|WITH) [\w.+-]+)*", re.ASCII)
_REMOTE = re.compile(
    r"(?:\w+://(?:[^@/]*@)?|[^@/:]*@)(?P<host>[\w.-]+)(?::\d+)?[:/](?P<path>[\w./-]+?)(?:\.git)?/?", re.ASCII
)
"""An address of a repository: ``https://user:token@host/owner/name.git``, ``git@host:owner/name.git``."""


def licence(root: Path, stated: str | None) -> str:
    """Returns the licence of a project's modules: what was stated, else the one in ``pyproject.toml``.

    Raises:
        KernelBookError: neither names one by an SPDX identifier or expression.
    """
    found = stated if stated is not None else _project(root).get("license")
    if isinstance(found, dict):
        found = found.get("text")
    if isinstance(found, str) and _LICENSE.fullmatch(found):
        return found
    raise KernelBookError(
        "Nobody can use pairs without a licence: --license, or `license` in [project] of pyproject.toml, "
        "must be an SPDX identifier such as Apache-2.0."
    )


def origin(root: Path, file: Path, licences: tuple[str, ...]) -> Origin:
    """Returns where the modules of a file come from, as far as git knows.

    The commit is left out where it does not hold what was verified: the file is not in it, or files were edited since.
    Neither user nor password in a remote's address is kept.
    """
    remote = _REMOTE.fullmatch(git_says(root, "remote", "get-url", "origin").strip())
    sha = git_says(root, "rev-parse", "--verify", "HEAD").strip() or None
    edited = git_says(root, "status", "--porcelain", "--untracked-files=no")
    if edited or not git_says(root, "ls-files", "--", str(file)):
        sha = None
    if remote is None:
        name = _project(root).get("name")
        return Origin(name if isinstance(name, str) else root.absolute().name, licences, sha)
    link = f"https://{remote['host']}/{remote['path']}"
    at_commit = sha is not None and remote["host"] == "github.com"
    return Origin(remote["path"], licences, sha, f"{link}/tree/{sha}" if at_commit else link)


def _project(root: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}
    return table if isinstance(table, dict) else {}
