"""Asks git about a folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath

_SILENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GCM_INTERACTIVE": "never",
}


def git_says(folder: Path, *arguments: str, stdin: str = "") -> str:
    """Returns what git prints, without letting it prompt; empty where it fails or is missing."""
    try:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", *arguments],
            cwd=folder,
            input=stdin.encode(),
            env={**os.environ, **_SILENT},
            capture_output=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def work_tree(root: Path) -> Path | None:
    """Returns the top of the git work tree that contains ``root``; None outside of one."""
    folder = root.absolute()
    return next((f for f in (folder, *folder.parents) if (f / ".git").exists()), None)


def folder_in_repository(root: Path) -> PurePosixPath:
    """Returns where ``root`` lies in its git work tree; ``.`` outside of one."""
    folder = root.absolute()
    return PurePosixPath(folder.relative_to(work_tree(folder) or folder).as_posix())
