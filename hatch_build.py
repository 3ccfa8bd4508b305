"""Builds with hatchling, and adds the dependency on ``kernelllm-runtime``, which depends on where the build runs.

In a checkout, the runtime is installed from the folder ``kernelllm_runtime`` beside, whether or not its version is on
PyPI. An sdist does not contain that folder: it and the wheels built from it depend on the same version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Without `prepare_metadata_for_build_wheel`, whose result lacks what hooks add: installers build the wheel and read that.
from hatchling.build import build_editable as build_editable
from hatchling.build import build_sdist as build_sdist
from hatchling.build import build_wheel as build_wheel
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Runtime(BuildHookInterface[Any]):
    """Adds the dependency to a wheel or an sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before each build; ``version`` is ``standard`` or ``editable``."""
        folder = Path(self.root, "kernelllm_runtime")
        if version == "editable":
            return  # the folder is on the path of an editable install
        if self.target_name == "wheel" and folder.is_dir():
            build_data["dependencies"].append(f"kernelllm-runtime @ {folder.as_uri()}")
        else:
            build_data["dependencies"].append(f"kernelllm-runtime=={self.metadata.version}")
