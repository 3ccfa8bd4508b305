"""An environment that has torch, what torch itself requires, and nothing else."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path


def required(
    name: str, found: dict[str, metadata.Distribution] | None = None
) -> dict[str, metadata.Distribution]:
    """A distribution and those that it requires here, without extras, by name."""
    found = {} if found is None else found
    if name not in found:
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another system
            return found
        for requirement in found[name].requires or ():
            if "extra ==" not in requirement:
                required(re.split(r"[^\w.-]", requirement)[0], found)
    return found


def torch_only(folder: Path, *wheels: Path) -> Path:
    """Lays out a folder with links to torch, triton, numpy and what they require, and installs wheels into it.

    Returns:
        The folder, for ``PYTHONPATH`` of ``python -S``.
    """
    folder.mkdir()
    for name in ("torch", "triton", "numpy"):
        for distribution in required(name).values():
            for top in {Path(str(file)).parts[0] for file in distribution.files or ()} - {".."}:
                link = folder / top
                if not link.exists():
                    link.symlink_to(Path(str(distribution.locate_file(top))))
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-warn-conflicts"]
    subprocess.run([*command, "--target", str(folder), *map(str, wheels)], check=True)
    return folder


def build(source: Path, folder: Path) -> Path:
    """Builds the wheel of a source tree, as installers do, and returns it."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(source),
    ]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))
