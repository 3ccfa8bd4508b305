"""Builds with hatchling, and adds the dependencies on this repository's other distributions.

In a checkout they are installed from the folders beside, whether or not their version is on PyPI. An sdist does not
contain those folders: it and the wheels built from it depend on the same version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Without `prepare_metadata_for_build_wheel`, whose result lacks what hooks add: installers build the wheel and read that.
from hatchling.build import (
    build_editable as build_editable,
    build_sdist as build_sdist,
    build_wheel as build_wheel,
)
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("kernelllm_runtime", "kernelllm_judge")


class Siblings(BuildHookInterface[Any]):
    """Adds the dependencies to a wheel or an sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each build; ``version`` is ``standard`` or ``editable``."""
        if version == "editable":
            return  # the folders are on the path of an editable install
        for package in PACKAGES:
            name, folder = package.replace("_", "-"), Path(self.root, package)
            if self.target_name == "wheel" and folder.is_dir():
                build_data["dependencies"].append(f"{name} @ {folder.as_uri()}")
            else:
                build_data["dependencies"].append(f"{name}=={self.metadata.version}")
