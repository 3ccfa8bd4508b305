"""Real git repositories: one that serves the hooks, and users' projects that take them from there."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hook_repository import CHECKOUT, Repository

SERVED = (
    *("kernelllm_runtime", "kernelllm_judge", "pytest_kernelllm", "hooks"),
    *("hatch_build.py", "pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"),
)


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> dict[str, str]:
    """Variables for git and pre-commit: the tools of this environment, no settings and caches from outside."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PRE_COMMIT", "KERNELLLM_"))}
    people = {
        f"GIT_{who}_{what}": "me@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    return {
        **kept,
        **people,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PRE_COMMIT_HOME": str(tmp_path_factory.mktemp("pre-commit-home")),
        "PRE_COMMIT_COLOR": "never",
        "NO_COLOR": "1",
        "PY_COLORS": "0",
    }


@pytest.fixture(scope="session")
def hooks(tmp_path_factory, environment) -> Repository:
    """This checkout as it stands, as a repository with one commit."""
    path = tmp_path_factory.mktemp("hooks")
    for name in SERVED:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(CHECKOUT / name, path / name)
    repository = Repository(path, environment)
    _commit_all(repository)
    return repository


@pytest.fixture
def new_repository(tmp_path, environment) -> Callable[[], Repository]:
    """Puts what lies in ``tmp_path`` under git, in one commit."""

    def new() -> Repository:
        repository = Repository(tmp_path, environment)
        _commit_all(repository)
        return repository

    return new


def _commit_all(repository: Repository) -> None:
    repository.must("git", "init", "-q", "-b", "main")
    repository.must("git", "add", "-A")
    repository.must("git", "commit", "-q", "-m", "start")
