"""The project that a command is run in, also from one of its subfolders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.config.settings import load_settings
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.place import FOLDER


@dataclass(frozen=True)
class Project:
    """A project's folder and its store."""

    root: Path
    store: Store
    kernels: str = FOLDER
    """Where new kernel modules go, see ``suggest.place``."""


def project_here() -> Project:
    """The nearest folder upwards, inside the git work tree, that holds a store; else the working directory.

    Raises:
        ConfigError: a setting has a wrong name or value.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        project = _project(folder)
        if project.store.path.is_dir():
            return project
        if (folder / ".git").exists():
            break
    return _project(here)


def _project(root: Path) -> Project:
    settings = load_settings(root)
    return Project(root, Store(root, settings.store), settings.kernels_dir)
