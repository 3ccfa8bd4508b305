"""Finds the project that a command runs in, also from a subfolder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_kernelllm.config.settings import load_settings
from pytest_kernelllm.store import Store
from pytest_kernelllm.suggest.place import FOLDER


@dataclass(frozen=True)
class ProjectContext:
    """A project's folder, its store, and where its kernels go."""

    root: Path
    store: Store
    kernels: str = FOLDER
    """Folder for new kernel modules, see ``suggest.place``."""


def project_here() -> ProjectContext:
    """Returns the nearest folder upwards in the git work tree that contains a store, or the working directory.

    Raises:
        ConfigError: a setting has an unknown name or an invalid value.
    """
    here = Path.cwd()
    for folder in (here, *here.parents):
        project = _project(folder)
        if project.store.path.is_dir():
            return project
        if (folder / ".git").exists():
            break
    return _project(here)


def _project(root: Path) -> ProjectContext:
    settings = load_settings(root)
    return ProjectContext(root, Store(root, settings.store), settings.kernels_dir)
