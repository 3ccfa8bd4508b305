"""Sessions that a page of the docs shows, executed in the page's order."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTEST_ADDOPTS": "",
}


@dataclass(frozen=True)
class Step:
    """A file of the page, or a command with what it prints."""

    name: str
    text: str
    is_file: bool = False


def steps(page: str) -> list[Step]:
    """Code blocks that begin with ``# name.py`` are files; ``console`` blocks hold commands."""
    found = []
    for language, block in re.findall(r"^```(python|console)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        if language == "console":
            pairs = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
            found += [Step(command, printed) for command, printed in pairs]
        elif name := re.match(r"# (\w+\.py)\n", block):
            found.append(Step(name[1], block, is_file=True))
    return found


def numberless(text: str) -> str:
    """Without hashes, versions and measured values, which depend on the machine, and without the folders of this one."""
    text = re.sub(r"\b[0-9a-f]{12,64}\b|\b\d[\w.+-]*", "N", text)
    return re.sub(r"(?<!\S)(/\S*|…)(?=/\.kernelllm)", "…", text)


def page(name: str) -> str:
    """A page of the docs."""
    return (DOCS / name).read_text()


def replay(text: str, folder: Path, **environ: str) -> int:
    """Write a page's files into a folder, run its commands there, and compare what they print.

    Returns:
        How many commands the page has.
    """
    commands = 0
    for step in steps(text):
        if step.is_file:
            (folder / step.name).write_text(step.text)
            continue
        done = subprocess.run(
            ["bash", "-c", step.name],
            cwd=folder,
            env=os.environ | ENVIRONMENT | environ,
            capture_output=True,
            text=True,
            check=False,
        )
        printed = done.stdout + done.stderr
        shown = f"$ {step.name}\nprinted\n{printed}\nand not, as the page has it,\n{step.text}"
        assert numberless(printed) == numberless(step.text), shown
        commands += 1
    return commands
