"""Fresh virtual environments with wheels of this repository, beside packages that are installed here."""

import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]
TORCH = ("torch", "triton", "numpy")


def required(names: tuple[str, ...]) -> dict[str, metadata.Distribution]:
    """Distributions and those that they require here, without extras, by name."""
    found: dict[str, metadata.Distribution] = {}
    todo = list(names)
    while todo:
        name = todo.pop()
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another system
        wanted = [r for r in found[name].requires or () if "extra ==" not in r]
        todo += [each for r in wanted if (each := re.split(r"[^\w.-]", r)[0]) not in found]
    return found


def environment(folder: Path, packages: tuple[str, ...], *wheels: Path) -> Path:
    """Makes a virtual environment with links to installed packages and what they require, and installs wheels into it.

    Returns:
        Its interpreter.
    """
    venv.create(folder, symlinks=True)
    [site] = folder.glob("lib/python*/site-packages")
    for distribution in required(packages).values():
        for target in _top(distribution):
            link = (folder / "bin" if target.parent.name == "bin" else site) / target.name
            if not link.exists():
                link.symlink_to(target)
        for script in distribution.entry_points.select(group="console_scripts"):
            file = folder / "bin" / script.name
            file.write_text(
                f"#!{folder}/bin/python\nimport sys\nfrom {script.module} import {script.attr}\nsys.exit({script.attr}())\n"
            )
            file.chmod(0o755)
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"]
    subprocess.run([*command, "--no-deps", "--no-index", *map(str, wheels)], check=True)
    return folder / "bin" / "python"


def _top(distribution: metadata.Distribution) -> Iterator[Path]:
    """What a distribution has in site-packages, and its programs that are no scripts of this interpreter."""
    for file in distribution.files or ():
        path = Path(str(distribution.locate_file(file)))
        if file.parts[0] != "..":
            yield Path(str(distribution.locate_file(file.parts[0])))
        elif path.parent.name == "bin" and path.is_file() and path.read_bytes()[:2] != b"#!":
            yield path.resolve()


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
    [wheel] = folder.glob("*.whl")
    return wheel
